"""Domains: words for them, one shape and one list of classes for both sides, and one left out of several."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from mohs._core.errors import DataError
from mohs.data.domains import (
    SHIFTS,
    aligned,
    invert,
    leave_one_out,
    open_domain,
    open_domains,
    open_pair,
    paired,
    parse_domain,
    rotate,
    shared_shape,
    unlabeled,
)
from mohs.data.examples import Data, Examples
from mohs.data.open_data import open_data
from mohs.data.unlabeled import open_unlabeled
from mohs.report.image_grid import picture_grid

REAL = pytest.mark.skipif("MOHS_DATA" not in os.environ, reason="MOHS_DATA names no folder of real data")


def images(
    number: int = 6, *, shape: tuple[int, ...] = (1, 8, 8), classes: tuple[object, ...] = (0, 1, 2), name: str = "x"
) -> Examples:
    generator = torch.Generator().manual_seed(number)
    pixels = torch.randint(0, 256, (number, *shape), generator=generator, dtype=torch.uint8)
    return Examples(pixels, torch.arange(number) % len(classes), list(classes), name=name)


def test_words() -> None:
    assert parse_domain("mnist") == ("mnist", [])
    assert parse_domain("mnist:invert") == ("mnist", [("invert", 1.0)])
    assert parse_domain("pacs:photo:contrast=0.5:noise=.1") == ("pacs:photo", [("contrast", 0.5), ("noise", 0.1)])
    assert parse_domain("cifar100:coarse") == ("cifar100:coarse", [])
    assert parse_domain("C:/photos") == ("C:/photos", [])
    with pytest.raises(ValueError, match=r"'mnist:twist=3': unknown shift 'twist'; known: invert, rotate"):
        parse_domain("mnist:twist=3")
    with pytest.raises(ValueError, match="blur needs a number, got 'lots'"):
        parse_domain("mnist:blur=lots")
    for wrong in ("mnist", "a->b->c", "->usps"):
        with pytest.raises(ValueError, match="a pair is written SOURCE->TARGET"):
            open_pair(wrong)


def test_invert_and_rotate() -> None:
    x, generator = images().inputs, torch.Generator()
    assert torch.equal(invert(x, 1.0, generator), 255 - x)
    assert torch.equal(rotate(x, 0.0, generator), x)
    for degrees, turns in ((90, 1), (180, 2), (270, 3)):
        assert (rotate(x, degrees, generator).int() - x.rot90(turns, (2, 3)).int()).abs().max() <= 1
    wide = torch.zeros(1, 1, 9, 21)
    wide[0, 0, 4, 14] = 1.0
    assert rotate(wide, 90.0, generator)[0, 0].argmax() == 0 * 21 + 10  # 4 to the right of the center -> 4 above it
    with pytest.raises(ValueError, match="invert must be between 0 and 1, got 2"):
        invert(x, 2, generator)


@pytest.mark.parametrize("shift", SHIFTS)
def test_a_pair_from_one_data_set_shares_no_image(shift: str) -> None:
    source, target = open_pair(f"digits->digits:{shift}", seed=3)
    assert set(source.train.keys).isdisjoint(target.train.keys)
    assert len(source.train) + len(target.train) == 1797
    assert source.train.shape == target.train.shape
    assert target.train.name == f"digits:{shift}"
    again = open_pair(f"digits->digits:{shift}", seed=3)[1]
    assert torch.equal(again.train.inputs, target.train.inputs)
    whole = open_domain("digits").train
    assert not torch.equal(target.train.inputs, whole.inputs[torch.tensor(target.train.keys)])


def test_both_sides_get_one_shape_and_the_classes_of_the_source() -> None:
    source = Data(images(6, shape=(1, 28, 28)))
    target = Data(
        images(9, shape=(3, 16, 20), classes=("2", "0", "1")), None, images(3, shape=(3, 16, 20), classes=("2", "0", "1"))
    )
    a, b = paired(source, target)
    assert a.train.shape == b.train.shape == b.test.shape == (3, 28, 28)
    assert torch.equal(a.train.inputs[:, 0], source.train.inputs[:, 0])
    assert b.train.classes == [0, 1, 2]
    assert b.train.labels.tolist() == [2, 0, 1] * 3
    features = Examples(torch.randn(4, 5), torch.arange(4) % 2, [0, 1], name="f")
    with pytest.raises(DataError, match=r"inputs have different shapes: x \(1, 28, 28\), f \(5,\)"):
        shared_shape([source.train, features])


def test_other_classes_are_named_and_missing_ones_are_not() -> None:
    target = images(classes=("a", "zebra", "b"), name="new")
    with pytest.raises(DataError, match="new has classes that old does not have: 'zebra'"):
        aligned(target, ["a", "b"], like="old")
    kept = target.take((target.labels != 1).nonzero().flatten())
    assert aligned(kept, ["b", "a", "c"], like="old").labels.tolist() == [1, 0, 1, 0]
    unknown = replace(target, labels=torch.full((6,), -1))
    assert aligned(unknown, ["b"]).labels.tolist() == [-1] * 6
    assert unlabeled(np.zeros((4, 8, 8)), ["a", "b"]).labels.tolist() == [-1] * 4


def folder_of(root: Path, classes: str, *, color: int) -> None:
    for name in classes:
        (root / name).mkdir(parents=True)
        for i in range(2):
            Image.new("RGB", (10, 10), (color, i, 0)).save(root / name / f"{i}.png")


def test_leave_one_out_of_folders_and_names(tmp_path: Path) -> None:
    for i, domain in enumerate(("art", "photo", "sketch")):
        folder_of(tmp_path / domain, "ab", color=100 * i)
    domains = open_domains(tmp_path)
    assert list(domains) == ["art", "photo", "sketch"]
    others, held = leave_one_out(domains, "photo")
    assert (len(others), len(held), others.name) == (8, 4, "art+sketch")
    assert set(others.inputs[:, 0].unique().tolist()) == {0, 200}
    with pytest.raises(ValueError, match="no domain 'oil' to leave out; known: art, photo, sketch"):
        leave_one_out(domains, "oil")
    with pytest.raises(DataError, match="photo is the only domain"):
        leave_one_out({"photo": held}, "photo")
    with pytest.raises(DataError, match="expected at least two domains"):
        open_domains(tmp_path / "art" / "a")
    named = open_domains(["digits", "digits:invert"])
    assert len(named["digits"]) + len(named["digits:invert"]) == 1797  # dealt out: no image is in both
    assert named["digits:invert"].inputs.float().mean() > 128 > named["digits"].inputs.float().mean()


def test_domains_as_data_to_train_on() -> None:
    pair = open_data("digits->digits:rotate=20")
    source, target = open_pair("digits->digits:rotate=20")
    assert pair.test is not None
    assert torch.equal(pair.train.inputs, source.train.inputs)
    assert torch.equal(pair.test.inputs, target.train.inputs)  # digits have no test set
    held = open_data("digits+digits:blur=1+digits:invert", without="digits:invert")
    assert held.test is not None
    assert len(held.train) + len(held.test) == 1797  # no image is in two domains
    assert abs(len(held.test) - 599) < 20
    mine = {tuple(x.flatten().tolist()) for x in 255 - held.test.inputs}
    assert not mine & {tuple(x.flatten().tolist()) for x in held.train.inputs}
    with pytest.raises(ValueError, match="no domain 'usps' to leave out; known: digits, digits:invert"):
        open_data("digits+digits:invert", without="usps")
    with pytest.raises(ValueError, match="needs several domains"):
        open_data(without="usps")


def test_unlabeled_folders_and_files(tmp_path: Path) -> None:
    folder_of(tmp_path / "new", "xyz", color=9)
    like = images(shape=(3, 8, 8))
    found = open_unlabeled(tmp_path / "new", like).train
    assert (found.shape, len(found), found.classes, set(found.labels.tolist())) == ((3, 8, 8), 6, [0, 1, 2], {-1})
    np.savez(tmp_path / "bad.npz", pixels=np.zeros(3))
    (tmp_path / "empty").mkdir()
    (tmp_path / "some.txt").write_text("words")
    features = Examples(torch.randn(4, 5), torch.arange(4) % 2, [0, 1], name="f")
    for path, other, message in (
        ("bad.npz", like, "no inputs under one of the names input"),
        ("empty", like, "no files"),
        ("none.txt", like, "no such file or folder"),
        ("some.txt", like, "a folder or .zip of images, image files, an .npz or .npy file, or a file of rows"),
        ("new", features, "images, but f has features of shape"),
    ):
        with pytest.raises(DataError, match=message):
            open_unlabeled(tmp_path / path, other)


def test_shifts_are_for_images_and_a_grid_is_of_them(tmp_path: Path) -> None:
    features = Examples(torch.randn(4, 5), torch.arange(4) % 2, [0, 1], name="f")
    np.savez(tmp_path / "f.npz", x=np.random.default_rng(0).normal(size=(6, 5)), y=np.arange(6) % 2)
    with pytest.raises(DataError, match="shifts need images in memory"):
        open_domain(f"{tmp_path / 'f.npz'}:invert")
    sheet = picture_grid(images(10), [0, 3, 9], captions=["a", "b", "ж"], columns=2)
    assert sheet.size == (6 + 2 * 70, 6 + 2 * 84)
    for arguments, message in (
        ((features, [0]), "a grid needs images"),
        ((images(), []), "places is empty"),
    ):
        with pytest.raises(ValueError, match=message):
            picture_grid(*arguments)
    with pytest.raises(ValueError, match="captions has 1 entries for 2 places"):
        picture_grid(images(), [0, 1], captions=["a"])


@REAL
def test_real_pairs_and_pacs() -> None:
    source, target = open_pair("mnist->usps")
    assert (source.train.shape, target.train.shape) == ((1, 28, 28), (1, 28, 28))
    assert (len(source.train), len(target.train), len(target.test)) == (60000, 7291, 2007)
    others, held = leave_one_out(open_domains("pacs"), "sketch")
    assert (len(others), len(held)) == (6062, 3929)
