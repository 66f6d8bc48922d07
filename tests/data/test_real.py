"""The published data sets as they are, from the folder that MOHS_DATA names."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest
import torch

from mohs.data.noise import add_noise
from mohs.data.open_data import open_data

HOME = Path(os.environ.get("MOHS_DATA") or "/nonexistent")
pytestmark = pytest.mark.skipif(not HOME.is_dir(), reason="MOHS_DATA names no folder with the published data sets")


@pytest.mark.parametrize(
    ("name", "numbers", "shape"),
    [
        ("mnist", (60_000, 10_000), (1, 28, 28)),
        ("fashion-mnist", (60_000, 10_000), (1, 28, 28)),
        ("usps", (7_291, 2_007), (1, 16, 16)),
    ],
)
def test_digits_and_clothes(name: str, numbers: tuple[int, int], shape: tuple[int, ...]) -> None:
    data = open_data(name)
    assert (len(data.train), len(data.test or ())) == numbers
    assert data.train.shape == shape
    assert int(data.train.inputs.max()) == 255  # type: ignore[union-attr]


def test_cifar10_is_in_the_official_order_of_the_human_labels() -> None:
    data = open_data("cifar10")
    assert (len(data.train), len(data.test or ())) == (50_000, 10_000)
    pixels = data.train.inputs
    assert isinstance(pixels, torch.Tensor)
    mean = pixels.sum((0, 2, 3)).double() / (255 * 1024 * 50_000)
    torch.testing.assert_close(mean, torch.tensor([0.49139968, 0.48215841, 0.44653091], dtype=torch.float64), atol=1e-7, rtol=0)
    for column, share in (("worse", 0.4021), ("aggre", 0.0901)):
        noisy = add_noise(data.train, {"name": "human", "file": f"cifar10n.npz:{column}"}, 0)
        assert float((noisy.labels != noisy.truth).double().mean()) == pytest.approx(share, abs=5e-5)


def test_pacs_packed_and_unpacked_are_the_same(tmp_path: Path) -> None:
    photos = open_data("pacs:photo").train
    assert (len(photos), photos.shape) == (1_670, (3, 64, 64))
    with zipfile.ZipFile(HOME / "pacs64.zip") as archive:
        archive.extractall(tmp_path, [name for name in archive.namelist() if name.startswith("photo/")])
    plain = open_data("pacs:photo", root=tmp_path).train
    assert torch.equal(plain.inputs, photos.inputs)  # type: ignore[arg-type]
    assert plain.keys == photos.keys
    folder = open_data(tmp_path / "photo").train
    assert torch.equal(folder.inputs, photos.inputs)  # type: ignore[arg-type]
    assert folder.classes == photos.classes
