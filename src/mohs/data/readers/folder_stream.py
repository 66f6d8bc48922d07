"""A folder of class folders as a stream: DATA/cat/1.jpg, DATA/dog/2.png. A key is the path within DATA.

Memory grows with the number of folders, not with that of files: a block names folders and places in them, and lists them again
when it is read. Folders within a class folder belong to it. Splits (train, test) are separate streams.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mohs._core.errors import DataError
from mohs.data import stream
from mohs.data.decode import is_image_name
from mohs.data.image_stores import is_ignored, printable
from mohs.data.readers.folder import LAYOUT
from mohs.data.split import split_called
from mohs.data.stream import Record, Stream


@dataclass(frozen=True)
class FileRange:
    """Files `start` to `stop` of the `number` files in a folder, by name."""

    folder: str
    label: str
    number: int
    start: int
    stop: int


def folder_stream(path: Path) -> Stream:
    """The images of a folder of class folders."""
    root = _below_wrappers(path)
    classes = _folders(root)
    if len(classes) < 2:
        raise DataError(f"{path}: {len(classes)} class folder(s), at least 2 are needed; {LAYOUT}")
    splits = sorted({called for one in classes if (called := split_called(one))})
    if "train" in splits and len(splits) > 1:
        raise DataError(f"{path}: has the splits {', '.join(splits)}: stream one of them, {root / 'train'}")
    digest = hashlib.sha256(str(path.resolve()).encode())
    blocks: list[tuple[FileRange, ...]] = []
    block: list[FileRange] = []
    room = stream.BLOCK_ROWS
    for name in classes:
        for folder in _below(root / name):
            files = _names(folder)
            for file in files:
                found = (folder / file).stat()
                digest.update(repr((str(folder), file, found.st_size, found.st_mtime_ns)).encode())
            start = 0
            while start < len(files):
                stop = min(len(files), start + room)
                block.append(FileRange(str(folder), name, len(files), start, stop))
                room -= stop - start
                start = stop
                if not room:
                    blocks.append(tuple(block))
                    block, room = [], stream.BLOCK_ROWS
    blocks += [tuple(block)] if block else []
    if not blocks:
        raise DataError(f"{path}: the class folders are empty; {LAYOUT}")

    def read(block: tuple[FileRange, ...]) -> Iterator[Record]:
        for part in block:
            folder, files = Path(part.folder), _names(Path(part.folder))
            if len(files) != part.number:
                raise DataError(
                    f"{folder}: holds {len(files)} files, {part.number} when the command started: run it again when all are there"
                )
            for file in files[part.start : part.stop]:
                at = folder / file
                yield Record(printable(at.relative_to(path).as_posix()), printable(part.label), printable(str(at)), at)

    return Stream(str(path), "images", blocks, read, digest.hexdigest()[:16])


def _below_wrappers(path: Path) -> Path:
    """The folder that holds the class folders: a single folder that holds folders and no image is a wrapper."""
    while len(inner := _folders(path)) == 1 and _folders(path / inner[0]):
        if any(map(is_image_name, _names(path / inner[0]))):
            break
        path = path / inner[0]
    return path


def _below(folder: Path, above: tuple[str, ...] = ()) -> Iterator[Path]:
    """The folder and the folders in it, by name; a link to a folder above is not followed."""
    real = os.path.realpath(folder)
    if real in above:
        return
    yield folder
    for name in _folders(folder):
        yield from _below(folder / name, (*above, real))


def _folders(folder: Path) -> list[str]:
    return sorted(entry.name for entry in _entries(folder) if entry.is_dir())


def _names(folder: Path) -> list[str]:
    """The files of a folder, by name."""
    return sorted(entry.name for entry in _entries(folder) if entry.is_file())


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            yield from (entry for entry in found if not is_ignored(entry.name))
    except OSError as error:
        raise DataError(f"{printable(str(folder))}: cannot be opened: {error.strerror}") from error
