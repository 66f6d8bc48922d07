"""A folder that belongs to one job and is used by one process at a time.

The job writes a marker file (run.json, adapt.json, audit.json) with its hash. Another job is refused the folder; the same
job may resume in it. A second process is refused as well: the operating system frees the lock when the first one ends.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mohs._core.checksums import MANIFEST, damaged, job_of, keep_checksums, name_job, read_json
from mohs._core.errors import DataError, FolderInUse, RunError
from mohs._core.files import written_whole

LOCK = ".lock"
HELD = {  # by marker file: contents of the folder, and the commands that take it
    "audit.json": ("an audit", "mohs review, mohs report and mohs apply take it"),
    "run.json": ("a training run", "mohs predict and mohs compare take it, and mohs audit DATA --run judges by it"),
    "adapt.json": ("an adaptation", "mohs adapt writes it, and no other command takes it"),
    "embed.json": ("an embedding", "mohs audit --stream and mohs score take it"),
}
MARKERS = frozenset(HELD)  # files that name the job of a folder


def is_output(names: Collection[str]) -> bool:
    """Whether a folder with files of these names holds an audit, a run, an adaptation or an embedding."""
    return LOCK in names and not MARKERS.isdisjoint(names)


def held_in(folder: str | Path) -> str:
    """A phrase on what a folder holds and which commands take it: "it holds an audit (mohs review ...)"; "" if it is not
    known.
    """
    found = [about for marker, about in HELD.items() if (Path(folder) / marker).is_file()]
    return f"it holds {found[0][0]} ({found[0][1]})" if found else ""


def refuse_output(folder: Path, *, wanted: str = "give the data") -> None:
    """Raise DataError if a folder that is given as data holds an audit, a run or an adaptation."""
    if _is_no_data(folder):
        raise DataError(f"{folder} is not data: {held_in(folder)}; {wanted}")


def refuse_data_folder(out: str | Path | None, data: Any) -> None:
    """Raise ValueError if the output folder is that of the data, which could not be read as data any more.

    A folder that holds an audit, a run or an adaptation is not data: data in memory, or known data, may have its name.
    """
    if out is None or not isinstance(data, str | Path) or not Path(data).is_dir():
        return
    if Path(out).resolve() == Path(data).resolve() and not _is_no_data(Path(data)):
        raise ValueError(f"out (--out) is the folder of the data, {out}: give another folder")


def _is_no_data(folder: Path) -> bool:
    """Whether a folder holds an audit, a run or an adaptation; an embedding can be read as data."""
    names = {entry.name for entry in folder.iterdir()}
    return is_output(names) and "embed.json" not in names


@contextmanager
def claimed(folder: str | Path, marker: str, about: Mapping[str, Any], *, kind: str, key: str = "hash") -> Iterator[Path]:
    """Create and lock a folder for a job, or raise RunError.

    Args:
        folder: Created if it does not exist.
        marker: Name of the JSON file that says whose folder it is; written once.
        about: Contents of the marker file.
        kind: What the job is called in errors: "run", "adaptation", "audit".
        key: Entry of `about` that identifies the job.
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / LOCK).open("w")
    except OSError as error:
        raise _unwritable(folder, error) from error
    with lock:
        try:
            lock_file(lock.fileno())
        except OSError:
            raise FolderInUse(
                f"{folder}: another process is using this folder; wait for it to finish, or stop it first"
            ) from None
        _mark(folder, marker, about, kind, key)
        yield folder


def _mark(folder: Path, marker: str, about: Mapping[str, Any], kind: str, key: str) -> None:
    file, job = folder / marker, str(about[key])
    try:
        keep_checksums(folder)
        noted = job_of(folder, marker)
        if noted not in (None, job) and _says(file, key) == job:
            lost, repair = "the other files cannot be checked", "remove this file to use them unchecked"
            raise damaged(folder / MANIFEST, "it is that of another folder", lost=lost, repair=repair)
        held = _marked(file, key) if file.exists() else noted or job  # without the marker, the checksums name the job
        if held == job and noted is None:
            name_job(folder, marker, job)
        if held == job and not file.exists():
            with written_whole(file) as part:
                part.write_text(json.dumps(about, indent=1, default=str) + "\n")
    except OSError as error:
        raise _unwritable(folder, error) from error
    if held != job:
        raise RunError(
            f"{folder} holds another {kind} ({held}, this one is {job}; data or settings differ): choose another folder"
        )


def _says(file: Path, key: str) -> str | None:
    """The job that the marker names, unchecked; None if it cannot be read."""
    try:
        return str(json.loads(file.read_text())[key])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _marked(file: Path, key: str) -> str:
    lost, repair = "what the folder holds is unknown", "remove this file and run the same command again; finished parts are kept"
    held = read_json(file, lost=lost, repair=repair)
    if key not in held:
        raise damaged(file, f"it lacks {key!r}", lost=lost, repair=repair)
    return str(held[key])


def _unwritable(folder: Path, error: OSError) -> RunError:
    return RunError(f"{folder}: cannot be written ({error.strerror or error}): give another folder with out (--out)")


def lock_file(file: int) -> None:
    """Lock an open file for this process, or raise OSError; the lock ends with the process."""
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        return
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
