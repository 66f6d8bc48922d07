"""Stores of encoded images: a folder, a zip file, or a list of bytes; each lists its names and opens one image.

Names are relative, with "/" between parts, and may hold surrogates for undecodable bytes of a file name;
`printable` makes valid UTF-8 of them. Hidden files and folders (names that begin with a dot, `__MACOSX`), and those
that Windows and network drives add to folders of photos (Thumbs.db, @eaDir), are ignored.
Output of mohs, such as runs/, is ignored too, so that data can be audited from within their folder. Links are followed; a link
to one of its parent folders is skipped, and `real` holds the targets of the others.
"""

from __future__ import annotations

import io
import os
import zipfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PureWindowsPath
from typing import Any, Protocol

from PIL import Image

from mohs._core.errors import DataError
from mohs._core.folders import is_output
from mohs.data.decode import formats
from mohs.data.examples import LeftOut

HIDDEN = (".", "__MACOSX")  # prefixes of names
ADDED = frozenset(("thumbs.db", "ehthumbs.db", "desktop.ini", "@eadir", "$recycle.bin", "system volume information"))
UNPACKED_LIMIT = 2**30  # bytes of one file in a zip
RATIO_LIMIT, RATIO_FROM = 1000, 2**24  # maximum compression ratio of a file in a zip, for files that unpack to at least this size
THREADS = min(8, os.cpu_count() or 1)


class Store(Protocol):
    """Images by name: `image` opens one (pixels may stay unread), `size` is its size in bytes; `threads` may read at once."""

    threads: int

    def image(self, name: Any, /) -> Image.Image: ...
    def size(self, name: Any, /) -> int: ...
    def path(self, name: Any, /) -> str: ...


@dataclass(frozen=True)
class Listing:
    """The files and folders below a root; real: the resolved path of each file; left_out: what could not be opened."""

    files: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    real: dict[str, str] = field(default_factory=dict)
    left_out: list[LeftOut] = field(default_factory=list)

    @cached_property
    def inner(self) -> dict[str, list[str]]:
        """Subfolders of each folder."""
        found: dict[str, list[str]] = {}
        for one in self.folders:
            found.setdefault(parent(one), []).append(one)
        return found

    @cached_property
    def number(self) -> Counter[str]:
        """Number of files in each folder, at any depth; "" is the root."""
        found: Counter[str] = Counter()
        for file in self.files:
            above = parent(file)
            while above:
                found[above] += 1
                above = parent(above)
            found[""] += 1
        return found


def parent(name: str) -> str:
    """The parent folder; "" is the root."""
    return name.rpartition("/")[0]


def is_ignored(name: str) -> bool:
    """Whether a file or folder of this name is hidden, or was added by an operating system."""
    return name.startswith(HIDDEN) or name.lower() in ADDED


def printable(name: str) -> str:
    """The name with lone surrogates escaped, so that it can be stored as UTF-8."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


def local_name(folder: Path, name: str) -> str:
    r"""The name of a file in a folder, with "/" if it was written with "\" on Windows and exists here only in that form."""
    plain = name.replace("\\", "/")
    return plain if plain != name and not (folder / name).is_file() and (folder / plain).is_file() else name


def is_on_a_drive(name: str) -> bool:
    r"""Whether the name is a path with a drive of Windows, such as C:\photos\1.jpg."""
    return bool(PureWindowsPath(name).drive)


class FolderFiles:
    """The files of a folder."""

    threads = THREADS

    def __init__(self, root: Path) -> None:
        self.root = root

    def image(self, name: str, /) -> Image.Image:
        return Image.open(self.root / name, formats=formats())

    def size(self, name: str, /) -> int:
        return (self.root / name).stat().st_size

    def path(self, name: str, /) -> str:
        return printable(str(self.root / name))

    def listing(self) -> Listing:
        """Every file and folder, sorted by name, links followed."""
        found = Listing()
        self._enter("", os.path.realpath(self.root), (), found)
        return found

    def _enter(self, folder: str, real: str, above: tuple[str, ...], found: Listing) -> bool:
        """List everything below a folder; returns whether it holds only output of mohs."""
        try:
            entries = sorted(os.scandir(self.root / folder), key=lambda entry: entry.name)
        except OSError as error:
            if not folder:
                raise DataError(f"{printable(str(self.root))}: cannot be opened: {error.strerror}") from error
            found.left_out.append(LeftOut(self.path(folder), f"the folder cannot be opened: {error.strerror}"))
            return False
        if folder and is_output({entry.name for entry in entries}):
            return True
        outputs, before = 0, (len(found.files), len(found.folders), len(found.left_out))
        for entry in entries:
            if is_ignored(entry.name):
                continue
            name = f"{folder}/{entry.name}" if folder else entry.name
            target = os.path.realpath(entry.path) if entry.is_symlink() else os.path.join(real, entry.name)
            if os.path.exists(target) and not os.path.isfile(target) and not os.path.isdir(target):
                found.left_out.append(LeftOut(self.path(name), "neither a file nor a folder"))  # a pipe would block
            elif not os.path.isdir(target):
                found.files.append(name)
                found.real[name] = target
            elif target == real or target in above:
                found.left_out.append(LeftOut(self.path(name), "a link to one of its parent folders"))
            else:
                found.folders.append(name)
                if self._enter(name, target, (*above, real), found):
                    found.folders.remove(name)
                    outputs += 1
        return outputs > 0 and before == (len(found.files), len(found.folders), len(found.left_out))


class ZipFiles:
    """The files of a zip, read without unpacking it; every process opens it itself."""

    threads = THREADS

    def __init__(self, file: Path) -> None:
        self.file = file
        self._opened: tuple[int, zipfile.ZipFile] | None = None
        self.archive()

    def archive(self) -> zipfile.ZipFile:
        """The zip file, opened by this process."""
        if self._opened is None or self._opened[0] != os.getpid():
            try:
                self._opened = (os.getpid(), zipfile.ZipFile(self.file))
            except (OSError, zipfile.BadZipFile) as error:
                raise DataError(f"{printable(str(self.file))}: cannot be read as a zip file: {error}") from error
        return self._opened[1]

    def read(self, name: str, /) -> bytes:
        """Content of a file."""
        if self.size(name) > UNPACKED_LIMIT:
            raise ValueError(f"{self.size(name)} bytes when unpacked: over the limit of {UNPACKED_LIMIT}")
        packed = self.archive().getinfo(name).compress_size
        if self.size(name) > RATIO_FROM and self.size(name) > RATIO_LIMIT * packed:
            raise ValueError(f"{packed} bytes become {self.size(name)} when unpacked: over the limit of {RATIO_LIMIT} times")
        return self.archive().read(name)

    def image(self, name: str, /) -> Image.Image:
        return Image.open(io.BytesIO(self.read(name)), formats=formats())

    def size(self, name: str, /) -> int:
        return self.archive().getinfo(name).file_size

    def path(self, name: str, /) -> str:
        return printable(f"{self.file}/{name}")

    def listing(self) -> Listing:
        """Every file and folder, sorted by name; a repeated name is an error."""
        found = Listing()
        folders: set[str] = set()
        for name in sorted(self.archive().namelist()):
            parts = name.rstrip("/").split("/")
            if any(map(is_ignored, parts)):
                continue
            inner = parts if name.endswith("/") else parts[:-1]
            folders.update("/".join(inner[:i]) for i in range(1, len(inner) + 1))
            if name.endswith("/"):
                continue
            if name in found.real:
                raise DataError(f"{self.path(name)}: occurs twice in the zip file: keep one")
            found.files.append(name)
            found.real[name] = name
        found.folders.extend(sorted(folders))
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {"file": self.file, "_opened": None}


class EncodedImages:
    """Images in memory as the bytes of their files; names are indices, paths are given."""

    threads = THREADS

    def __init__(self, encoded: Sequence[bytes], paths: Sequence[str]) -> None:
        self.encoded, self.paths = encoded, paths

    def image(self, name: int, /) -> Image.Image:
        return Image.open(io.BytesIO(self.encoded[name]), formats=formats())

    def size(self, name: int, /) -> int:
        return len(self.encoded[name])

    def path(self, name: int, /) -> str:
        return self.paths[name]
