"""Files in object stores by their address: s3://, gs:// and hf://, read in place and written by upload, with retries.

s3:// and gs:// go through Arrow's own clients, others (hf://) through fsspec, if the package that knows the scheme is installed
(hf://: huggingface_hub). Credentials, regions and endpoints are those of the environment (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL,
GOOGLE_APPLICATION_CREDENTIALS, HF_TOKEN).
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from mohs._core.errors import DataError

TRIES, FIRST_PAUSE = 4, 0.5  # number of attempts, and seconds before the second; each further pause is twice as long
NATIVE = ("s3", "gs", "gcs", "file")
Result = TypeVar("Result")


def is_remote(path: str | Path) -> bool:
    """Whether this is an address (s3://bucket/folder) rather than a path."""
    return re.match(r"[a-z][a-z0-9+.-]*://", str(path)) is not None


@contextmanager
def quiet_hub() -> Iterator[None]:
    """Without the log of the Hugging Face client, whose lines say what the error says that follows them."""
    log = logging.getLogger("huggingface_hub")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)


@lru_cache
def filesystem(scheme: str, bucket: str) -> Any:
    """The Arrow file system of a scheme; bucket: decides the region of S3."""
    from pyarrow import fs

    try:
        if scheme == "s3" and "AWS_ENDPOINT_URL" in os.environ:  # a custom endpoint
            where = {"endpoint_override": os.environ["AWS_ENDPOINT_URL"], "region": os.environ.get("AWS_REGION")}
            return fs.S3FileSystem(allow_delayed_open=True, **where)  # small files in one request
        if scheme in NATIVE:
            return fs.FileSystem.from_uri(f"{scheme}://{bucket}/")[0]
        import fsspec

        return fs.PyFileSystem(fs.FSSpecHandler(fsspec.filesystem(scheme)))
    except (ImportError, ValueError, OSError) as error:
        raise DataError(f"{scheme}://{bucket}: addresses of this kind cannot be opened: {error}") from error


def opened_at(address: str) -> tuple[Any, str]:
    """The Arrow file system of an address, and its path there."""
    scheme, _, path = address.partition("://")
    return filesystem(scheme, path.partition("/")[0]), path


def list_files(address: str, suffix: str) -> list[str]:
    """Addresses of the files with this suffix in a folder, by name; the address itself if it is such a file."""
    from pyarrow import fs

    system, path = opened_at(address)
    scheme = address.partition("://")[0]
    if path.endswith(suffix):
        return [address]
    found = retried(lambda: system.get_file_info(fs.FileSelector(path.rstrip("/"))), address)
    return sorted(f"{scheme}://{one.path}" for one in found if one.type == fs.FileType.File and one.path.endswith(suffix))


def stamp_of(address: str) -> tuple[str, int, str]:
    """Address, size and date of a remote file."""
    system, path = opened_at(address)
    info = retried(lambda: system.get_file_info(path), address)
    return address, int(info.size or 0), str(info.mtime_ns)


def upload(source: Path, address: str) -> None:
    """Copy a file, or all files of a folder, to an address; what is there is replaced."""
    system, path = opened_at(address)
    files = [source] if source.is_file() else sorted(file for file in source.rglob("*") if file.is_file())
    for file in files:
        target = path if source.is_file() else f"{path.rstrip('/')}/{file.relative_to(source).as_posix()}"

        def copy(file: Path = file, target: str = target) -> None:
            with file.open("rb") as read, system.open_output_stream(target) as write:
                while piece := read.read(1 << 22):
                    write.write(piece)

        retried(copy, f"{address.partition('://')[0]}://{target}")


@contextmanager
def written_to(out: str) -> Iterator[Path]:
    """The path to write a file to: `out` itself or, for an address, a temporary file that is uploaded when the block ends."""
    if not is_remote(out):
        yield Path(out)
        return
    with TemporaryDirectory() as folder:
        file = Path(folder) / out.rpartition("/")[2]
        yield file
        upload(file, out)


def retried(call: Callable[[], Result], address: str) -> Result:
    """The result of a call that reads or writes this address; an OSError is tried again, then reported as a DataError."""
    for attempt in range(TRIES):
        try:
            return call()
        except FileNotFoundError as error:
            raise DataError(f"{address}: no such file or folder ({error})") from error
        except OSError as error:
            if attempt == TRIES - 1:
                raise DataError(f"{address}: cannot be reached, tried {TRIES} times: {error}") from error
            time.sleep(pause(attempt))
    raise AssertionError


def reread(read: Callable[[], Iterator[Result]], address: str, *errors: type[Exception]) -> Iterator[Result]:
    """What `read` yields; after an OSError, or one of these errors, a remote file is read again without what was yielded before.

    The error of the last attempt is raised; files of this machine are read once.
    """
    yielded = 0
    failures: tuple[type[Exception], ...] = (OSError, *errors)
    for attempt in range(tries := TRIES if is_remote(address) else 1):
        try:
            for number, found in enumerate(read()):
                if number == yielded:
                    yield found
                    yielded += 1
            return
        except failures:
            if attempt == tries - 1:
                raise
            time.sleep(pause(attempt))


def pause(attempt: int) -> float:
    """Seconds to wait after this attempt, from 0."""
    return float(FIRST_PAUSE * 2**attempt)
