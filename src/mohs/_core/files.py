"""Atomic files: written next to their final name, then renamed; their checksums are listed where the folder keeps them."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mohs._core.checksums import refuse_folder, replacing


@contextmanager
def written_whole(path: Path, *, sync: bool = True) -> Iterator[Path]:
    """A temporary file to write to, which replaces `path` when the block ends without an error.

    sync: Wait until the file is on the disk, in case the machine itself crashes.
    """
    refuse_folder(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        try:
            yield part
        except OSError as error:
            if str(part) in (error.filename or "") + str(error):  # name the file that was asked for
                reason = error.strerror or str(error).replace(str(part), str(path))
                raise OSError(error.errno or errno.EIO, reason, str(path)) from error
            raise
        if sync:
            with part.open("rb") as written:
                os.fsync(written.fileno())
        with replacing(path, part, sync=sync):
            part.replace(path)
    finally:
        part.unlink(missing_ok=True)
