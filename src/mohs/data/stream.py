"""A stream: labeled images or texts in blocks, read one at a time and not kept in memory.

Blocks, the order in them and the ids depend on the files alone, so a block can be read by any process, and again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mohs._core.remote import is_remote, stamp_of
from mohs.data.examples import LeftOut

BLOCK_ROWS = 4096  # rows of a block, unless a file determines them


@dataclass(frozen=True)
class Record:
    """One example.

    Attributes:
        id: Its name or row number, unique in the data.
        label: Its label as stored in the data.
        source: File that it came from.
        content: A text, the path of an image, or the bytes of its file.
    """

    id: Any
    label: Any
    source: str
    content: str | bytes | Path


@dataclass(frozen=True, eq=False)
class Stream:
    """Data in blocks.

    Attributes:
        name: Path or address.
        kind: "images" or "text".
        blocks: The blocks in order, arguments of `read`.
        read: Function of a block that returns its examples, and those that must be skipped.
        fingerprint: A hash of the names, sizes and dates of all files.
    """

    name: str
    kind: str
    blocks: Sequence[Any]
    read: Callable[[Any], Iterator[Record | LeftOut]]
    fingerprint: str

    def spread(self, most: int) -> Iterator[Record]:
        """About this many examples: the first ones of blocks spread evenly over the data."""
        apart = max(1, len(self.blocks) // most)
        chosen = self.blocks[::apart]
        share = -(-most // len(chosen))
        for block in chosen:
            found = (one for one in self.read(block) if isinstance(one, Record))
            yield from (one for one, _ in zip(found, range(share), strict=False))


def fingerprint_of(files: Sequence[str]) -> str:
    """A hash of the names, sizes and dates of these files."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(repr(stamp_of(file) if is_remote(file) else _stamp(Path(file))).encode())
    return digest.hexdigest()[:16]


def _stamp(file: Path) -> tuple[str, int, int]:
    found = file.stat()
    return str(file), found.st_size, found.st_mtime_ns
