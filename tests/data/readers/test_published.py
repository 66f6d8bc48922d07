from __future__ import annotations

import gzip
import io
import os
import pickle
import struct
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from mohs._core.errors import DataError
from mohs.data.readers.cifar import cifar10, cifar100, strip_part
from mohs.data.readers.cifar_names import CIFAR10, CIFAR100, CIFAR100_GROUPS
from mohs.data.readers.digits import digits
from mohs.data.readers.idx import fashion_mnist, mnist, read_idx
from mohs.data.readers.pacs import pacs
from mohs.data.readers.usps import usps

Save = Callable[..., Path]
RANDOM = np.random.default_rng(0)


def idx(values: np.ndarray) -> bytes:
    return bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()


def four_files(folder: Path, *, packed: bool) -> dict[str, np.ndarray]:
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {}
    for stem, n in (("train", 12), ("t10k", 4)):
        arrays[f"{stem}-images-idx3-ubyte"] = RANDOM.integers(0, 256, (n, 5, 5), dtype=np.uint8)
        arrays[f"{stem}-labels-idx1-ubyte"] = np.arange(n, dtype=np.uint8) % 10
    for name, array in arrays.items():
        content = idx(array)
        (folder / f"{name}{'.gz' if packed else ''}").write_bytes(gzip.compress(content) if packed else content)
    return arrays


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("inner", ["", "raw"])
def test_idx_files(tmp_path: Path, packed: bool, inner: str) -> None:
    arrays = four_files(tmp_path / inner, packed=packed)
    data = mnist(tmp_path)
    assert np.array_equal(data.train.inputs[:, 0], arrays["train-images-idx3-ubyte"])  # type: ignore[index, call-overload]
    assert data.test.labels.tolist() == [0, 1, 2, 3]  # type: ignore[union-attr]
    assert data.classes == list(range(10))
    assert fashion_mnist(tmp_path).classes[-1] == "Ankle boot"


def test_invalid_idx_files(tmp_path: Path) -> None:
    good = idx(np.zeros((2, 3), np.uint8))
    for content, message in [
        (b"", "not an idx file of unsigned bytes: it begins with nothing"),
        (b"\x89PNG1234", "it begins with 89504e47"),
        (good[:6], "truncated within its header"),
        (good[:-1], r"its header says 6 values \(2, 3\), it holds 5: download it again"),
        (gzip.compress(good)[:-9], "cannot be read"),
        (bytes([0, 0, 8, 3]) + b"\xff" * 12, "its header says 79228162458924105385300197375 values"),
    ]:
        (tmp_path / "x").write_bytes(content)
        with pytest.raises(DataError, match=message):
            read_idx(tmp_path / "x")
    with pytest.raises(DataError, match="train-images is missing; the four files are train-images-idx3-ubyte"):
        mnist(tmp_path)
    four_files(tmp_path, packed=False)
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx(np.zeros(3, np.uint8)))
    with pytest.raises(DataError, match=r"holds \(4, 5, 5\).*\(3,\): images \(N, H, W\) and labels \(N,\) are expected"):
        mnist(tmp_path)


def batch(path: Path, protocol: int = 2, **values: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(values, protocol=protocol))


@pytest.mark.parametrize("protocol", [2, 4])
def test_official_cifar_batches(tmp_path: Path, protocol: int) -> None:
    pixels = RANDOM.integers(0, 256, (60, 3072), dtype=np.uint8)
    home = tmp_path / "cifar-10-batches-py"
    names = [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]
    for i, name in enumerate(names):
        batch(home / name, protocol, data=pixels[10 * i : 10 * i + 10], labels=list(range(10)), filenames=["a"] * 10)
    data = cifar10(tmp_path)
    assert np.array_equal(data.train.inputs, pixels[:50].reshape(-1, 3, 32, 32))  # type: ignore[call-overload]
    assert data.test.labels.tolist() == list(range(10))  # type: ignore[union-attr]
    assert data.classes == CIFAR10
    assert len(cifar10(home).train) == 50
    (home / "data_batch_3").unlink()
    with pytest.raises(DataError, match="data_batch_3: this batch is missing"):
        cifar10(tmp_path)


def test_cifar100_has_fine_and_coarse_labels(tmp_path: Path) -> None:
    assert CIFAR100[:3] == ["apple", "aquarium_fish", "baby"]
    assert (len(set(CIFAR100)), CIFAR100.index("wolf"), list(CIFAR100_GROUPS).index("fish")) == (100, 97, 1)
    for name in ("train", "test"):
        batch(tmp_path / "cifar-100-python" / name, data=np.zeros((2, 3072), np.uint8), fine_labels=[0, 97], coarse_labels=[4, 8])
    assert cifar100(tmp_path).train.labels.tolist() == [0, 97]
    coarse = cifar100(tmp_path, labels="coarse")
    assert [coarse.classes[i] for i in coarse.train.labels.tolist()] == ["fruit_and_vegetables", "large_carnivores"]
    with pytest.raises(ValueError, match="labels must be one of fine, coarse, got 'rough'"):
        cifar100(tmp_path, labels="rough")


class Evil:
    def __reduce__(self) -> Any:
        return os.system, ("touch pwned",)


def test_a_pickle_cannot_execute_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    good = {"data": np.zeros((1, 3072), np.uint8), "labels": [0]}
    for values, message in [
        ({**good, "more": Evil()}, r"it names (posix|nt)\.system, which a CIFAR batch does not; nothing in it was run"),
        ({**good, "data": np.array([Evil()])}, "is not allowed|it names"),
        ({**good, "data": np.zeros((1, 5), np.uint8)}, r"data must be \(N, 3072\) bytes, got uint8 \(1, 5\)"),
        ({"data": good["data"]}, "data and labels are expected, it has data"),
        ({**good, "labels": [10]}, r"labels from 10 to 10, outside 0\.\.9"),
        ({**good, "labels": [0, 1]}, "5 images but 10 labels"),
    ]:
        for i in range(1, 6):
            batch(tmp_path / f"data_batch_{i}", **values)  # type: ignore[arg-type]
        with pytest.raises(DataError, match=message):
            cifar10(tmp_path)
    (tmp_path / "data_batch_1").write_bytes(pickle.dumps([1]))
    with pytest.raises(DataError, match="expected a dictionary, got list"):
        cifar10(tmp_path)
    (tmp_path / "data_batch_1").write_bytes(b"\x80\x02}q\x01U\xff")
    with pytest.raises(DataError, match="data_batch_1: cannot be read as a CIFAR batch"):
        cifar10(tmp_path)
    assert not (tmp_path / "pwned").exists()


def strip(path: Path, images: np.ndarray, labels: np.ndarray) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        file = io.BytesIO()
        np.save(file, labels)
        archive.writestr("labels.npy", file.getvalue())
        archive.writestr("classes.txt", "\n".join(CIFAR10))
        for i in range(0, len(images), 4):
            file = io.BytesIO()
            Image.fromarray(images[i : i + 4].reshape(-1, 32, 3)).save(file, "WEBP", lossless=True)
            archive.writestr(f"strip-{i // 4:04}.webp", file.getvalue())


def test_strips_in_parts(tmp_path: Path) -> None:
    images = RANDOM.integers(0, 256, (13, 32, 32, 3), dtype=np.uint8)
    labels = (np.arange(13) % 10).astype(np.uint8)
    strip(tmp_path / "cifar10-train-1.zip", images[:6], labels[:6])
    strip(tmp_path / "cifar10-train-2.zip", images[6:10], labels[6:10])
    strip(tmp_path / "cifar10-test.zip", images[10:], labels[10:])
    data = cifar10(tmp_path)
    assert np.array_equal(data.train.inputs, images[:10].transpose(0, 3, 1, 2))  # type: ignore[call-overload]
    assert data.test.labels.tolist() == [0, 1, 2]  # type: ignore[union-attr]
    assert len(strip_part(tmp_path / "cifar10-train-2.zip").train) == 4
    with pytest.raises(DataError, match="cifar100 not found: neither the official batches"):
        cifar100(tmp_path)
    strip(tmp_path / "cifar10-test.zip", images[10:], labels[:2])
    with pytest.raises(DataError, match="3 images but 2 labels"):
        cifar10(tmp_path)
    with zipfile.ZipFile(tmp_path / "cifar10-test.zip", "w") as archive:
        archive.writestr("a", "b")
    with pytest.raises(DataError, match=r"labels\.npy is missing: not a zip file of strips"):
        cifar10(tmp_path)


def test_digits_are_bytes() -> None:
    train = digits().train
    assert (train.inputs.shape, train.inputs.dtype) == ((1797, 1, 8, 8), torch.uint8)  # type: ignore[union-attr]
    assert (int(train.inputs.max()), torch.bincount(train.labels).min()) == (255, 174)  # type: ignore[union-attr]


def test_usps_levels(tmp_path: Path) -> None:
    x = np.array([0, 1000, 2000], np.uint16).repeat(256).reshape(3, 16, 16)
    np.savez(tmp_path / "usps.npz", train_x=x, train_y=[0, 1, 2], test_x=x[:2], test_y=[1, 2])
    data = usps(tmp_path)
    assert data.train.inputs[:, 0, 0, 0].tolist() == [0, 128, 255]  # type: ignore[index, union-attr, call-overload]
    assert data.test.inputs[:, 0, 0, 0].tolist() == [0, 128]  # type: ignore[index, union-attr, call-overload]
    np.savez(tmp_path / "usps.npz", x=x, y=[0, 1, 2])
    with pytest.raises(DataError, match="train_x, train_y, test_x and test_y with images"):
        usps(tmp_path / "usps.npz")


def test_pacs_keeps_the_domains(tmp_path: Path, save: Save) -> None:
    for domain, n in (("photo", 3), ("sketch", 2)):
        for name in ("dog", "person"):
            for i in range(n):
                save(tmp_path / domain / name / f"{i}.png")
    every = pacs(tmp_path, domains=["photo", "sketch"]).train
    assert (len(every), every.name, len(every.classes)) == (10, "pacs:photo+sketch", 7)
    assert Counter(key.partition("/")[0] for key in every.keys) == {"photo": 6, "sketch": 4}
    with zipfile.ZipFile(tmp_path / "pacs64.zip", "w") as archive:
        for file in sorted(tmp_path.rglob("*.png")):
            archive.write(file, f"PACS/{file.relative_to(tmp_path)}")
    packed = pacs(tmp_path / "pacs64.zip", domains=["photo"]).train
    assert packed.keys == pacs(tmp_path, domains=["photo"]).train.keys
    with pytest.raises(ValueError, match="domains: unknown 'video'; known: art_painting, cartoon, photo, sketch"):
        pacs(tmp_path, domains=["video"])
    with pytest.raises(DataError, match="no images of cartoon"):
        pacs(tmp_path, domains=["cartoon"])
    with pytest.raises(DataError, match=r"PACS not found: neither pacs64\.zip nor folders called"):
        pacs(tmp_path / "photo")
    save(tmp_path / "photo" / "cow" / "1.png")
    with pytest.raises(DataError, match="expected DOMAIN/CLASS/NAME with one of the classes dog, elephant"):
        pacs(tmp_path, domains=["photo"])
