"""WebDataset as a stream: .tar files whose members with the same name up to the first dot are one example.

    000017.jpg                 the image, under any usual ending
    000017.cls, 000017.json    the label: a number or a name, or an entry of the JSON object called one of LABELS

A key is FILE.tar/NAME. A .tar file is read from its start to its end, once, and one example of it is in memory.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mohs._core.errors import DataError
from mohs._core.remote import is_remote, opened_at, reread
from mohs._core.vocabulary import LABELS, find_name
from mohs.data.examples import LeftOut
from mohs.data.image_stores import UNPACKED_LIMIT, is_ignored, printable
from mohs.data.stream import Record, Stream, fingerprint_of

IMAGES = ("jpg", "jpeg", "png", "webp", "gif", "bmp", "ppm", "pgm", "pbm", "tif", "tiff", "image", "img")
Sample = dict[str, bytes]  # the extensions of an example's members, and their contents


def tar_stream(files: Sequence[str], name: str, *, label: str | None = None) -> Stream:
    """The images of .tar files, one block for each; label: see `open_stream`."""

    def read(file: str) -> Iterator[Record | LeftOut]:
        try:
            yield from reread(lambda: _records(file, label), file)
        except (OSError, tarfile.TarError, EOFError) as error:
            raise DataError(f"{file}: cannot be read as a .tar file: {error}") from error

    return Stream(name, "images", list(files), read, fingerprint_of(files))


def _records(file: str, label: str | None) -> Iterator[Record | LeftOut]:
    within = printable(file.rpartition("/")[2])
    for name, sample in _samples(file):
        source = printable(f"{file}/{name}")
        image = next((ending for ending in IMAGES if ending in sample), None)
        value = _label(sample, label)
        if image is None or value is None:
            yield LeftOut(source, "no image" if image is None else "no label")
        else:
            yield Record(printable(f"{within}/{name}"), value, f"{source}.{image}", sample[image])


def _samples(file: str) -> Iterator[tuple[str, Sample]]:
    """Examples by name, in the order of the file."""
    name, sample = None, Sample()
    with _opened(file) as opened, tarfile.open(fileobj=opened, mode="r|*") as tar:
        for member in tar:
            tar.members = []  # type: ignore[attr-defined]  # else all headers stay in memory
            folder, slash, last = member.name.rpartition("/")
            if not member.isfile() or is_ignored(last):
                continue
            stem, _, ending = last.partition(".")
            if f"{folder}{slash}{stem}" != name:
                if name is not None:
                    yield name, sample
                name, sample = f"{folder}{slash}{stem}", Sample()
            held = tar.extractfile(member)
            if held is not None and member.size <= UNPACKED_LIMIT:
                sample[ending.lower()] = held.read()
    if name is not None:
        yield name, sample


@contextmanager
def _opened(file: str) -> Iterator[Any]:
    if is_remote(file):
        system, path = opened_at(file)
        with system.open_input_stream(path) as opened:
            yield opened
    else:
        with Path(file).open("rb") as plain:
            yield plain


def _label(sample: Sample, label: str | None) -> Any:
    """The label of an example; None if it has none."""
    held = sample.get("cls" if label is None else label.lower())
    if held is not None:
        return _plain(held.decode("utf-8", "replace").strip())
    try:
        entries = json.loads(sample.get("json", b"{}"))
    except ValueError:
        return None
    key = (find_name(entries, LABELS) if label is None else label) if isinstance(entries, dict) else None
    return None if key is None else entries.get(key)


def _plain(text: str) -> Any:
    """Digits as a number; None for an empty label."""
    return int(text) if text.isdecimal() else text or None
