"""Files written whole or not at all: beside their place first, then renamed into it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def written_whole(path: Path, *, sync: bool = True) -> Iterator[Path]:
    """A file to write to that takes the place of `path` when the block ends, and never when it fails.

    sync: wait until the disk has it, in case the machine itself dies.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield part
        if sync:
            with part.open("rb") as written:
                os.fsync(written.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
