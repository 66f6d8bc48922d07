"""A folder (or a zip) of class folders, with or without the splits train, val and test above them.

    DATA/cat/1.jpg, DATA/dog/2.png            or            DATA/train/cat/1.jpg, DATA/val/dog/2.png, DATA/test/cat/3.webp

Folders within a class folder belong to it. Folders around the layout (dataset/cat, as zip files often have them), and files
next to the class folders, such as README.txt, are not classes. Unreadable files are skipped and listed with the reason; classes
without a readable image are left out. Classes are the names of the training folders, sorted as strings. A key is the path within
DATA.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mohs._core.errors import DataError, NoLabels
from mohs.data.decode import Size, is_image_name
from mohs.data.empty_classes import without_empty_classes
from mohs.data.examples import Data, LeftOut
from mohs.data.image_stores import FolderFiles, Listing, ZipFiles, parent, printable
from mohs.data.images import MEMORY_LIMIT
from mohs.data.readers.image_set import LACKS, Picture, Pictures, picture_data
from mohs.data.split import split_called

LAYOUT = "put each class's images in a folder of its own: DATA/cat/1.jpg, DATA/dog/2.jpg (or DATA/train/cat/1.jpg, DATA/test/...)"

LOOSE = "not in a class folder"
SHOWN = 5


def folder(
    path: str | Path, *, image_size: int | Size | None = None, memory_limit: int = MEMORY_LIMIT, name: str | None = None
) -> Data:
    """The images of a folder of class folders, or of a zip file of one."""
    path = Path(path)
    shown = printable(str(path))
    store: FolderFiles | ZipFiles = FolderFiles(path) if path.is_dir() else ZipFiles(path)
    listing = store.listing()
    top = _below_wrappers(listing)
    splits = _splits(listing, top)
    left_out = [("train", one) for one in listing.left_out]
    left_out += [("train", LeftOut(store.path(file), why)) for file, why in _outside(listing, top, splits)]
    classes = _classes(listing, splits["train"], shown)
    entries: list[Picture] = []
    for split, root in splits.items():
        entries += _entries(listing, root, split, classes, shown)
        loose = [file for file in listing.files if parent(file) == root] if root != top else []
        left_out += [(split, LeftOut(store.path(file), LOOSE)) for file in loose]
    _check_twice(listing, entries, store)
    notes = _notes(listing, splits["train"])
    called = printable(path.resolve().name if path.is_dir() else path.stem) if name is None else name
    plan = Pictures(store, entries, [printable(one) for one in classes], called, left_out, notes)
    data = without_empty_classes(picture_data(plan, image_size=image_size, memory_limit=memory_limit), lacks=LACKS)
    return Data(**{split: replace(part, left_out=_images_first(part.left_out)) for split, part in data.splits.items()})


def _images_first(left_out: Sequence[LeftOut]) -> list[LeftOut]:
    """Images before files such as notes.txt: messages name the first."""
    return sorted(left_out, key=lambda one: not is_image_name(one.path))


def _below_wrappers(listing: Listing) -> str:
    """The folder where the layout begins: a single folder whose images are all in subfolders is a wrapper.

    Files such as README.txt, and folders without an image, do not count.
    """
    images = [file for file in listing.files if is_image_name(file)] or listing.files
    holding = {parent(file) for file in images}
    number = replace(listing, files=images).number
    top = ""
    while True:
        inner = [one for one in listing.inner.get(top, []) if number[one]]
        if len(inner) != 1 or inner[0] in holding or inner[0] not in listing.inner:
            return top
        top = inner[0]


def _splits(listing: Listing, top: str) -> dict[str, str]:
    """Split -> its folder; without a train folder of class folders, the top folder is the training split.

    A class may be called "train": the name means a split only if there is another split.
    """
    called = [(split_called(one.rpartition("/")[2]), one) for one in listing.inner.get(top, [])]
    found: dict[str, str] = {}
    for split, one in called:
        if split is None or one not in listing.inner:
            continue
        if split in found:
            raise DataError(f"{printable(found[split])} and {printable(one)} are both the {split} split: keep one")
        found[split] = one
    beside = any(split not in (None, "train") for split, _ in called)
    return found if "train" in found and beside else {"train": top}


def _outside(listing: Listing, top: str, splits: dict[str, str]) -> list[tuple[str, str]]:
    """Files and folders outside the layout; a folder is listed once, with its number of files."""
    above = f"{top}/" if top else ""
    loose = [(file, LOOSE) for file in listing.files if parent(file) == top or not file.startswith(above)]
    if list(splits.values()) == [top]:
        return loose
    for one in listing.inner[top]:
        if one not in splits.values():
            number = listing.number[one]
            loose.append((one, f"neither train, val nor test with class folders: {number} file(s) not read"))
    return loose


def _classes(listing: Listing, root: str, shown: str) -> list[str]:
    """Names of the training class folders; an error where there are no two classes with files."""
    found = sorted(listing.inner.get(root, []))
    if not listing.files and not found:
        raise DataError(f"{shown}: the folder is empty; {LAYOUT}")
    if not found:
        raise NoLabels(f"{shown}: files but no class folders; {LAYOUT}")
    empty = [one for one in found if not listing.number[one]]
    if empty and len(found) - len(empty) < 2:
        raise DataError(f"{shown}: the class folder {printable(empty[0])!r} is empty: add images, or remove it")
    if len(found) == 1:
        raise NoLabels(f"{shown}: a single class folder, {printable(found[0])!r}: a classifier needs at least 2; {LAYOUT}")
    return [one.rpartition("/")[2] for one in found]


def _notes(listing: Listing, root: str) -> list[str]:
    """A note where no class folder holds a file itself: the classes may be one level below."""
    holding = {parent(file) for file in listing.files}
    classes = listing.inner[root]
    if any(one in holding for one in classes):
        return []
    inner = sorted({printable(one.rpartition("/")[2]) for outer in classes for one in listing.inner.get(outer, [])})
    shown = ", ".join(inner[:SHOWN]) + (", ..." if len(inner) > SHOWN else "")
    return [f"the class folders hold only folders ({shown}); the outer folders were taken as the classes"]


def _entries(listing: Listing, root: str, split: str, classes: list[str], shown: str) -> list[Picture]:
    """The files of one split with their classes."""
    number = {name: i for i, name in enumerate(classes)}
    start = len(root) + 1 if root else 0
    entries = []
    for file in listing.files:
        if root and not file.startswith(f"{root}/"):
            continue
        own, inner, _ = file[start:].partition("/")
        if not inner:
            continue  # next to the class folders: skipped
        if own not in number:
            raise DataError(f"{shown}: {printable(f'{root}/{own}')!r} is a class without a training folder")
        entries.append(Picture(file, number[own], split, printable(file)))
    return entries


def _check_twice(listing: Listing, entries: list[Picture], store: FolderFiles | ZipFiles) -> None:
    """Validate that no link leads to a file of the same split: it would count twice, perhaps with two labels."""
    seen: dict[tuple[str, str], str] = {}
    firsts = [(seen.setdefault((entry.split, listing.real[entry.name]), entry.name), entry.name) for entry in entries]
    twice = [(store.path(first), store.path(name)) for first, name in firsts if first != name]
    if twice:
        more = f"; {len(twice)} such pairs" if len(twice) > 1 else ""
        raise DataError(f"{twice[0][0]} and {twice[0][1]} are the same file (a link{more}): keep one")
