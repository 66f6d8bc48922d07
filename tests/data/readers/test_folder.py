from __future__ import annotations

import os
import pickle
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from mohs._core.errors import DataError
from mohs.data import image_stores
from mohs.data.image_stores import RATIO_FROM
from mohs.data.images import ImageFiles
from mohs.data.readers.folder import folder
from mohs.data.readers.folder_stream import folder_stream

Save = Callable[..., Path]


def two_classes(root: Path, save: Save, *, n: int = 3, **more: object) -> Path:
    for name in ("cat", "dog"):
        for i in range(n):
            save(root / name / f"{name}{i}.png", **more)
    return root


def test_class_folders_become_one_tensor(tmp_path: Path, save: Save) -> None:
    data = folder(two_classes(tmp_path / "pets", save, size=(8, 6)))
    assert (data.name, data.classes, data.val, data.test) == ("pets", ["cat", "dog"], None, None)
    train = data.train
    assert train.inputs.shape == (6, 3, 6, 8)  # (N, C, H, W)
    assert train.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert train.keys[0] == "cat/cat0.png"  # type: ignore[index]
    for i, path in enumerate(train.paths):  # type: ignore[arg-type]
        assert np.array_equal(train.inputs[torch.tensor([i])][0].permute(1, 2, 0).numpy(), np.asarray(Image.open(path)))


@pytest.mark.parametrize("val", ["val", "valid", "Validation"])
def test_splits_are_recognized_and_share_classes_and_size(tmp_path: Path, save: Save, val: str) -> None:
    two_classes(tmp_path / "train", save)
    two_classes(tmp_path / val, save, n=1, size=(12, 12))
    save(tmp_path / "test" / "dog" / "9.png")
    (tmp_path / "train" / "README.txt").write_text("about")
    (tmp_path / "extra" / "more").mkdir(parents=True)
    (tmp_path / "extra" / "more" / "a.png").write_text("")
    data = folder(tmp_path)
    assert {split: len(part) for split, part in data.splits.items()} == {"train": 6, "val": 2, "test": 1}
    assert data.test.labels.tolist() == [1]  # type: ignore[union-attr]
    assert data.test.shape == data.val.shape == data.train.shape == (3, 8, 8)  # type: ignore[union-attr]
    assert data.notes == [
        "images of several sizes were scaled and center-cropped to 8 × 8: set image_size (--image-size) for another size"
    ]
    assert [(Path(one.path).name, one.reason) for one in data.left_out] == [
        ("extra", "neither train, val nor test with class folders: 1 file(s) not read"),
        ("README.txt", "not in a class folder"),
    ]


def test_a_class_may_be_called_train(tmp_path: Path, save: Save) -> None:
    for name in ("train", "bus", "tram"):
        save(tmp_path / name / "old" / "1.png")
        save(tmp_path / name / "2.png")
    assert folder(tmp_path).classes == ["bus", "train", "tram"]


def test_test_images_without_class_folders_are_reported(tmp_path: Path, save: Save) -> None:
    two_classes(tmp_path / "train", save)
    save(tmp_path / "test" / "1.png")
    data = folder(tmp_path)
    assert data.test is None
    assert "1 file(s) not read" in data.left_out[0].reason


def test_unreadable_files_are_skipped_with_the_reason(tmp_path: Path, save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    two_classes(tmp_path, save)
    good = (tmp_path / "cat" / "cat0.png").read_bytes()
    (tmp_path / "cat" / "empty.png").write_bytes(b"")
    (tmp_path / "cat" / "half.png").write_bytes(good[: len(good) // 2])
    (tmp_path / "cat" / "text.jpg").write_text("no image")
    (tmp_path / "dog" / "notes.txt").write_text("fed twice")
    (tmp_path / "dog" / "IMG_1.HEIC").write_bytes(b"\x00\x00\x00\x18ftypheic" + bytes(99))
    (tmp_path / ".cache").mkdir()
    (tmp_path / "dog" / "gone.png").symlink_to(tmp_path / "nowhere.png")
    save(tmp_path / "dog" / "big.png", size=(40, 40))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)  # 1,600 pixels are a warning, 2,001 an error
    save(tmp_path / "dog" / "bomb.png", size=(90, 90))
    train = folder(tmp_path).train
    reasons = {Path(one.path).name: one.reason for one in train.left_out}
    assert len(train) == 6
    assert set(reasons) == {"empty.png", "half.png", "text.jpg", "notes.txt", "IMG_1.HEIC", "gone.png", "big.png", "bomb.png"}
    assert reasons["text.jpg"] == reasons["notes.txt"] == "not an image that Pillow can read"
    assert reasons["empty.png"] == "the file is empty"
    assert reasons["IMG_1.HEIC"] == "a HEIC image, which Pillow cannot read: convert it to JPEG or PNG"
    assert "truncated" in reasons["half.png"]
    assert reasons["gone.png"] == "No such file or directory"
    assert (
        reasons["big.png"]
        == reasons["bomb.png"]
        == ("over 1,000 pixels (a decompression bomb, or a very large image): scale it down")
    )


def test_what_systems_add_to_folders_is_ignored(tmp_path: Path, save: Save) -> None:
    two_classes(tmp_path / "photos", save)
    for name in ("dog/Thumbs.db", "dog/.DS_Store", "desktop.ini", "@eaDir/dog0.png/SYNOFILE_THUMB_S.png", "$RECYCLE.BIN/1.png"):
        save(tmp_path / "photos" / f"{name}.png").rename(tmp_path / "photos" / name)
    with zipfile.ZipFile(tmp_path / "photos.zip", "w") as archive:
        for file in (tmp_path / "photos").rglob("*"):
            archive.write(file, file.relative_to(tmp_path))
    for data in (folder(tmp_path / "photos"), folder(tmp_path / "photos.zip")):
        assert (data.classes, len(data.train), data.left_out) == (["cat", "dog"], 6, [])


def test_names_of_any_kind(tmp_path: Path, save: Save) -> None:
    strange = os.fsdecode(b"caf\xe9 \xff.png")
    save(tmp_path / "ключ 🗝" / strange)
    save(tmp_path / "<script>alert(1)</script>"[:16] / "=1+1.png")
    save(tmp_path / os.fsdecode(b"\xfe") / "‮evil.png")
    train = folder(tmp_path).train
    assert len(train) == 3
    for text in [*train.paths, *train.keys, *train.classes]:  # type: ignore[misc]
        text.encode("utf-8")
    assert any("caf\\udce9 \\udcff.png" in path for path in train.paths)  # type: ignore[union-attr]
    lazy = folder(tmp_path, memory_limit=0).train
    assert torch.equal(lazy.inputs[torch.arange(3)], train.inputs)  # type: ignore[arg-type]
    assert len(lazy.fingerprint()) == 16


def test_output_of_mohs_among_the_classes_is_ignored(tmp_path: Path, save: Save) -> None:
    for name in ("cat", "dog"):
        save(tmp_path / name / "1.png")
    for name in ("runs/audit-1", "runs/train-1/second", "cat/out"):
        for file in (".lock", "audit.json", "report.html"):
            (tmp_path / name).mkdir(parents=True, exist_ok=True)
            (tmp_path / name / file).touch()
    data = folder(tmp_path)
    assert (data.classes, data.train.keys, data.left_out) == (["cat", "dog"], ["cat/1.png", "dog/1.png"], [])
    save(tmp_path / "runs" / "1.png")
    assert folder(tmp_path).classes == ["cat", "dog", "runs"]


def test_link_loops_end_and_links_are_followed(tmp_path: Path, save: Save) -> None:
    two_classes(tmp_path / "real", save)
    (tmp_path / "data").mkdir()
    for name in ("cat", "dog"):
        (tmp_path / "data" / name).symlink_to(tmp_path / "real" / name)
    (tmp_path / "real" / "cat" / "loop").symlink_to(tmp_path / "real")
    (tmp_path / "real" / "dog" / "self").symlink_to(tmp_path / "real" / "dog")
    data = folder(tmp_path / "real")
    assert len(data.train) == 6
    assert [one.reason for one in data.left_out] == ["a link to one of its parent folders"] * 2
    (tmp_path / "real" / "cat" / "loop").unlink()
    os.mkfifo(tmp_path / "real" / "cat" / "pipe")
    assert "neither a file nor a folder" in [one.reason for one in folder(tmp_path / "real").left_out]
    assert len(folder(tmp_path / "data").train) == 6


def test_one_file_by_two_names_is_an_error(tmp_path: Path, save: Save) -> None:
    two_classes(tmp_path, save)
    (tmp_path / "dog" / "same.png").symlink_to(tmp_path / "cat" / "cat1.png")
    with pytest.raises(DataError, match=r"cat/cat1\.png and .*dog/same\.png are the same file \(a link\): keep one"):
        folder(tmp_path)
    (tmp_path / "dog" / "too.png").symlink_to(tmp_path / "cat" / "cat2.png")
    with pytest.raises(DataError, match=r"\(a link; 2 such pairs\): keep one"):
        folder(tmp_path)


def test_folders_that_are_not_a_data_set(tmp_path: Path, save: Save) -> None:
    with pytest.raises(DataError, match="the folder is empty; put each class's images in a folder of its own: DATA/cat"):
        folder(tmp_path)
    save(tmp_path / "1.png")
    with pytest.raises(DataError, match="files but no class folders; put each class's images"):
        folder(tmp_path)
    save(tmp_path / "cat" / "1.png")
    with pytest.raises(DataError, match="a single class folder, 'cat': a classifier needs at least 2"):
        folder(tmp_path)
    (tmp_path / "dog").mkdir()
    with pytest.raises(DataError, match="the class folder 'dog' is empty"):
        folder(tmp_path)
    (tmp_path / "dog" / "1.png").write_text("no image")
    with pytest.raises(
        DataError, match=r"none of the 1 file\(s\) of class 'dog' could be read as an image \(the first: .*1\.png: not"
    ):
        folder(tmp_path)
    save(tmp_path / "dog" / "2.png")
    assert [Path(one.path).name for one in folder(tmp_path).left_out] == ["1.png", "1.png"]


def test_a_class_without_a_readable_image_is_left_out_and_named(tmp_path: Path, save: Save) -> None:
    two_classes(tmp_path / "train", save)
    for split in ("train", "test"):
        (tmp_path / split / "bird").mkdir(parents=True)
    (tmp_path / "train" / "ant").mkdir()
    (tmp_path / "train" / "ant" / "1.png").write_text("no image")
    save(tmp_path / "test" / "ant" / "2.png")
    save(tmp_path / "test" / "dog" / "3.png")
    data = folder(tmp_path)
    assert data.classes == ["cat", "dog"]
    assert data.notes == ["2 classes were left out, without a readable image: 'ant', 'bird'"]
    assert data.train.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert data.test is not None
    assert (data.test.labels.tolist(), data.test.keys) == ([1], ["test/dog/3.png"])
    assert [(Path(one.path).name, one.reason) for one in data.left_out] == [
        ("1.png", "not an image that Pillow can read"),
        ("2.png", "class 'ant' has no training example"),
    ]


def test_classes_and_splits_that_do_not_fit(tmp_path: Path, save: Save) -> None:
    two_classes(tmp_path / "train", save)
    save(tmp_path / "test" / "cow" / "1.png")
    with pytest.raises(DataError, match="'test/cow' is a class without a training folder"):
        folder(tmp_path)
    save(tmp_path / "val" / "cat" / "1.png")
    save(tmp_path / "valid" / "cat" / "1.png")
    with pytest.raises(DataError, match="val and valid are both the val split: keep one"):
        folder(tmp_path)


def test_outer_folders_are_the_classes_with_a_note(tmp_path: Path, save: Save) -> None:
    for name in ("photo/dog", "photo/cat", "sketch/dog"):
        save(tmp_path / name / "1.png")
    data = folder(tmp_path)
    assert data.classes == ["photo", "sketch"]
    assert data.notes == ["the class folders hold only folders (cat, dog); the outer folders were taken as the classes"]


def test_a_zip_is_read_as_its_folder(tmp_path: Path, save: Save) -> None:
    root = two_classes(tmp_path / "pets", save)
    (root / "cat" / "broken.png").write_text("x")
    with zipfile.ZipFile(tmp_path / "pets.zip", "w") as archive:
        for file in sorted(root.rglob("*")):
            archive.write(file, f"wrapper/{file.relative_to(root)}")
        archive.writestr("__MACOSX/wrapper/cat/._cat0.png", b"")
        archive.writestr("LICENSE", b"")
    packed, plain = folder(tmp_path / "pets.zip"), folder(root)
    assert packed.classes == plain.classes
    assert torch.equal(packed.train.inputs, plain.train.inputs)  # type: ignore[arg-type]
    assert [Path(one.path).name for one in packed.left_out] == ["broken.png", "LICENSE"]  # images first
    lazy = folder(tmp_path / "pets.zip", memory_limit=0).train.inputs
    assert torch.equal(pickle.loads(pickle.dumps(lazy))[torch.arange(6)], plain.train.inputs)  # type: ignore[arg-type]


def test_a_file_that_unpacks_to_much_more_than_its_size_is_left_out(tmp_path: Path, save: Save) -> None:
    for name in ("cat/a.png", "cat/b.png", "dog/c.png", "dog/d.png"):
        save(tmp_path / name)
    with zipfile.ZipFile(tmp_path / "pets.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(tmp_path.glob("*/*.png")):
            archive.write(file, file.relative_to(tmp_path))
        archive.writestr("cat/bomb.png", bytes(RATIO_FROM + 1))
    found = folder(tmp_path / "pets.zip").train
    assert len(found) == 4
    assert ["over the limit of 1000 times" in one.reason for one in found.left_out] == [True]


def test_a_file_that_unpacks_beyond_the_limit_is_left_out(tmp_path: Path, save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cat/a.png", "cat/b.png", "dog/c.png", "dog/d.png"):
        save(tmp_path / name)
    with zipfile.ZipFile(tmp_path / "pets.zip", "w") as archive:
        for file in sorted(tmp_path.glob("*/*.png")):
            archive.write(file, file.relative_to(tmp_path))
        archive.writestr("cat/large.png", bytes(5000))
    assert image_stores.UNPACKED_LIMIT == 2**30
    monkeypatch.setattr(image_stores, "UNPACKED_LIMIT", 4999)
    found = folder(tmp_path / "pets.zip").train
    assert len(found) == 4
    assert ["over the limit of 4999" in one.reason for one in found.left_out] == [True]


def test_files_and_folders_without_images_beside_the_layout(tmp_path: Path, save: Save) -> None:
    two_classes(tmp_path / "dataset", save)
    (tmp_path / "dataset" / "README.txt").write_text("about")
    stream = folder_stream(tmp_path)
    assert {one.label for block in stream.blocks for one in stream.read(block)} == {"cat", "dog"}
    for name in ("dataset/.DS_Store", "dataset/notes.csv", "LICENSE", "docs/manual.pdf"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("about")
    with zipfile.ZipFile(tmp_path / "dataset.zip", "w") as archive:
        for file in sorted(tmp_path.glob("d*/**/*.*")):
            archive.write(file, file.relative_to(tmp_path))
    for path in (tmp_path, tmp_path / "dataset", tmp_path / "dataset.zip"):
        data = folder(path)
        assert (data.classes, len(data.train)) == (["cat", "dog"], 6)
        assert {"README.txt", "notes.csv"} <= {Path(one.path).name for one in data.left_out}
    (tmp_path / "docs" / "manual.pdf").unlink()
    (tmp_path / "docs").rmdir()
    save(tmp_path / "dataset" / "loose.png")
    with pytest.raises(DataError, match="a single class folder, 'dataset'"):
        folder(tmp_path)


def test_zips_that_are_not_a_data_set(tmp_path: Path, save: Save) -> None:
    (tmp_path / "bad.zip").write_text("nothing")
    with pytest.raises(DataError, match=r"bad\.zip: cannot be read as a zip file"):
        folder(tmp_path / "bad.zip")
    image = save(tmp_path / "1.png").read_bytes()
    with warnings.catch_warnings(), zipfile.ZipFile(tmp_path / "twice.zip", "w") as archive:
        warnings.simplefilter("ignore")
        for name in ("a/1.png", "b/1.png", "a/1.png"):
            archive.writestr(name, image)
    with pytest.raises(DataError, match=r"a/1\.png: occurs twice in the zip file: keep one"):
        folder(tmp_path / "twice.zip")


def test_images_beyond_the_memory_limit_are_decoded_on_access(tmp_path: Path, save: Save) -> None:
    root = two_classes(tmp_path / "pets", save)
    (root / "cat" / "half.png").write_bytes((root / "cat" / "cat0.png").read_bytes()[:60])
    whole, lazy = folder(root).train, folder(root, memory_limit=6 * 192 - 1).train
    assert isinstance(lazy.inputs, ImageFiles)
    assert not lazy.in_memory
    assert (lazy.shape, lazy.kind, len(lazy.left_out)) == (whole.shape, "images", 1)
    places = torch.tensor([5, 0, 0, 3])
    assert torch.equal(lazy.inputs[places], whole.inputs[places])
    part = lazy.take(torch.tensor([4, 1]))
    assert torch.equal(part.inputs[torch.tensor([1])], whole.inputs[torch.tensor([1])])
    assert lazy.inputs[torch.tensor([], dtype=torch.long)].shape == (0, 3, 8, 8)
    before = lazy.fingerprint()
    assert before == folder(root, memory_limit=0).train.fingerprint()
    save(root / "cat" / "cat0.png", size=(30, 30))
    assert before != folder(root, memory_limit=0, image_size=8).train.fingerprint()
    (root / "cat" / "cat0.png").unlink()
    with pytest.raises(DataError, match=r"cat0\.png: can no longer be read: No such file"):
        lazy.inputs[torch.tensor([0])]
