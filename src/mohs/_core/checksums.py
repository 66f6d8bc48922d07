"""Checksums of the files in a folder, so that damage is noticed when a file is read.

FOLDER/checksums.json lists the CRC-32 and the size of each file that `written_whole` writes there, and its own checksum. It is
kept in every folder that `keep_checksums` was called for; other folders are unchanged, and read without a check.

    write    list the new sum next to the old one → rename the new file → drop the old sum
    remove   drop the sum → remove the file

A process that is killed at any point leaves files whose sums are listed. An unlisted file is not checked.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from mohs._core.errors import DataError

MANIFEST = "checksums.json"
ABSENT = "absent"  # listed as the old sum of a new file
CHUNK = 1 << 20
Held = dict[str, Any]  # jobs: {marker: job}, files: {name: sums}


def keep_checksums(folder: Path) -> None:
    """List the checksums of the files that are written in this folder from now on."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / MANIFEST).exists():
        with _locked(folder):
            if _read(folder) is None:
                _write(folder, {"jobs": {}, "files": {}}, sync=False)


def name_job(folder: Path, marker: str, job: str) -> None:
    """Store the folder's job, in case the marker file is damaged."""
    _change(folder, lambda held: held["jobs"].update({marker: job}))


def job_of(folder: Path, marker: str) -> str | None:
    """The job that `name_job` noted; None if there is none."""
    held = _read(folder)
    return None if held is None else held["jobs"].get(marker)


def listed(folder: Path) -> set[str]:
    """Names of the files in this folder that have a checksum, without those that a killed process was about to create."""
    held = _read(folder)
    return set() if held is None else {name for name, sums in held["files"].items() if ABSENT not in sums}


def check_file(path: Path, *, lost: str, repair: str) -> bool:
    """Compare a file with its checksum.

    Args:
        path: The file.
        lost: What is lost if it is damaged, as "the weights are lost".
        repair: How to get it back, as "run the same command again".

    Returns:
        Whether it was checked: False for a file without a checksum.

    Raises:
        DataError: The file differs from its checksum, is missing, or is a directory.
    """
    held = _read(path.parent)
    sums = [] if held is None else held["files"].get(path.name, [])
    if path.exists() and not path.is_file():
        raise damaged(path, "it is not a file", lost=lost, repair=repair)
    if not path.exists() and sums and ABSENT not in sums:
        raise DataError(f"{path} is missing: {lost}; {repair}")
    if not sums or not path.exists():
        return False
    if _sum(path) not in sums:
        raise damaged(path, f"it differs from its checksum in {MANIFEST}", lost=lost, repair=repair)
    return True


@contextmanager
def reading(path: Path, *, lost: str, repair: str) -> Iterator[bool]:
    """Check a file, then report any error of its reader as damage; arguments and value as for `check_file`."""
    checked = check_file(path, lost=lost, repair=repair)
    try:
        yield checked
    except (DataError, MemoryError):
        raise
    except FileNotFoundError:
        raise DataError(f"{path} is missing: {lost}; {repair}") from None
    except KeyError as error:
        raise damaged(path, f"it lacks {error}", lost=lost, repair=repair) from error
    except Exception as error:  # each format has its own types of errors
        raise damaged(path, str(error) or type(error).__name__, lost=lost, repair=repair) from error


def read_json(path: Path, *, lost: str, repair: str) -> dict[str, Any]:
    """The JSON object in a file; anything else there is damage. Arguments as for `check_file`."""
    with reading(path, lost=lost, repair=repair):
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise TypeError(f"it holds {json.dumps(found)[:40]} instead of an object")
        return found


def damaged(path: Path, problem: str, *, lost: str, repair: str) -> DataError:
    """The error for a damaged file: which one, how, what is lost, and the remedy."""
    return DataError(f"{path} is damaged ({problem}): {lost}; {repair}")


def refuse_folder(path: Path) -> None:
    """Raise DataError if there is a folder where a file is written."""
    if path.is_dir():
        raise DataError(f"{path} is a folder, but a file of that name is written here: move the folder away")


@contextmanager
def replacing(path: Path, part: Path, *, sync: bool) -> Iterator[None]:
    """List the sum of `part` while the block renames it to `path`; does nothing in a folder without checksums."""
    if not (path.parent / MANIFEST).exists():
        yield
        return
    new = _sum(part)

    def both(held: Held) -> None:
        old = held["files"].get(path.name, [])
        if not path.exists():
            old = [ABSENT]
        elif len(old) != 1:  # it was not listed, or a process was killed while it replaced the file
            old = [_sum(path)]
        held["files"][path.name] = [*old, new]

    _change(path.parent, both, sync=sync)
    yield
    _change(path.parent, lambda held: held["files"].update({path.name: [new]}))


def list_file(path: Path) -> None:
    """List the sum of a file that was not written by `written_whole`."""
    if (path.parent / MANIFEST).exists():
        new = _sum(path)
        _change(path.parent, lambda held: held["files"].update({path.name: [new]}))


def unlist_file(path: Path) -> None:
    """Drop a file's sum, before the file is changed or removed."""
    if path.name in (held["files"] if (held := _read(path.parent)) is not None else ()):
        _change(path.parent, lambda held: held["files"].pop(path.name, None))


def remove_file(path: Path) -> None:
    """Remove a file, if it is there, and its sum."""
    refuse_folder(path)
    unlist_file(path)
    path.unlink(missing_ok=True)


def _sum(path: Path) -> str:
    crc = size = 0
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(CHUNK):
            crc, size = zlib.crc32(chunk, crc), size + len(chunk)
    return f"{crc:08x}-{size}"


def _change(folder: Path, change: Callable[[Held], Any], *, sync: bool = False) -> None:
    with _locked(folder):
        held = _read(folder)
        if held is not None:
            change(held)
            _write(folder, held, sync=sync)


def _read(folder: Path) -> Held | None:
    """The contents of checksums.json; None if there is none."""
    path = folder / MANIFEST
    try:
        held = json.loads(path.read_bytes())
        own = held.pop("checksum")
        if own == _own(held) and isinstance(held["jobs"], dict) and isinstance(held["files"], dict):
            found: Held = held
            return found
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        pass
    lost, repair = "the other files cannot be checked", "remove this file to use them unchecked"
    raise damaged(path, "it differs from its own checksum", lost=lost, repair=repair)


def _write(folder: Path, held: Mapping[str, Any], *, sync: bool) -> None:
    part = folder / f".{MANIFEST}.{os.getpid()}.part"
    try:
        with part.open("w") as file:
            file.write(json.dumps({**held, "checksum": _own(held)}, indent=1) + "\n")
            if sync:
                file.flush()
                os.fsync(file.fileno())
        part.replace(folder / MANIFEST)
    finally:
        part.unlink(missing_ok=True)


def _own(held: Mapping[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(held, sort_keys=True).encode()):08x}"


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One process, or thread, at a time changes the list; without a lock if the file system does not support locks."""
    try:
        import fcntl

        place = os.open(folder, os.O_RDONLY)
    except (ImportError, OSError):  # Windows
        yield
        return
    try:
        with suppress(OSError):
            fcntl.flock(place, fcntl.LOCK_EX)
        yield
    finally:
        os.close(place)
