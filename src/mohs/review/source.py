"""The source of a review: the folder of an audit, or any Parquet table with a column of labels.

    open_source("runs/photos")                                       an audit: hardness.parquet and the files beside it
    open_source("table.parquet", label="class", images="photos/")    any table; pictures are files below the folder

A column's role is its purpose: the label, the suggestion, the text ... A table from elsewhere has some of the roles.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from mohs._core.checksums import check_file, read_json
from mohs._core.errors import DataError
from mohs.audit.decision_log import LOG
from mohs.audit.file_names import EVIDENCE, MARK, PICTURES, REPAIR, TABLE, WORDS
from mohs.audit.result import not_an_audit

ROLES: dict[str, tuple[str, ...]] = {  # role: names of columns that may have it, the first that exists
    "id": ("id",),
    "label": ("label", "target", "class", "y"),
    "suggested": ("suggested_label", "predicted_label", "predicted"),
    "chance": ("p_mislabeled",),
    "verdict": ("verdict",),
    "grade": ("mohs",),
    "why": ("why",),
    "split": ("split", "subset", "fold"),
    "path": ("path", "file_name", "filename", "file", "image_path", "image"),
    "text": ("text", "sentence", "review", "comment"),
    "fields": ("fields",),
    "x": ("map_x", "x"),
    "y": ("map_y", "y"),
}
TEXTUAL = ("verdict", "why", "path", "text", "fields")  # roles that only a column of text can have
NUMERIC = ("chance", "grade", "x", "y")
KINDS = ("number", "text", "flag", "time")
CHUNK = 1 << 20


@dataclass(frozen=True)
class Column:
    """A column that can be sorted and filtered: what kind of values it has, and what they mean."""

    name: str
    kind: str
    meaning: str = ""
    direction: str = ""


@dataclass(frozen=True)
class Source:
    """The source of a review.

    Attributes:
        table: The Parquet file, one row per example.
        log: The decision log.
        name, data_hash: Name and fingerprint of the data.
        kind: What an example is: "images", "text", "table" or "features".
        columns: The columns that are loaded, by name.
        roles: The column of each role that there is.
        classes: Class names, in the order of the data; empty if they are to be read from the labels.
        images: Folder that the paths are relative to, and outside of which no file is read; None: as the audit wrote them.
        folder: Folder of the audit; None for a table that is not one.
        call: How the audit was called, to open its data and to repeat it.
        facts: Facts that the audit stores about itself.
    """

    table: Path
    log: Path
    name: str
    data_hash: str
    kind: str
    columns: Mapping[str, Column]
    roles: Mapping[str, str]
    classes: Sequence[str] = ()
    images: Path | None = None
    folder: Path | None = None
    call: Mapping[str, Any] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    def file(self, name: str) -> Path | None:
        """A file of the audit's folder, if it is there."""
        found = None if self.folder is None else self.folder / name
        return found if found is not None and found.is_file() else None


def open_source(
    path: str | Path, *, label: str | None = None, text: str | None = None, images: str | Path | None = None
) -> Source:
    """Open the folder of an audit, or a Parquet table.

    Args:
        path: Folder of a finished audit, or a Parquet file.
        label, text: Columns of the label and the text, for a table that mohs did not make.
        images: Folder of the pictures; their paths in the table are relative to it.
    """
    path = Path(path)
    root = None if images is None else Path(images)
    if root is not None and not root.is_dir():
        raise DataError(f"{root} is not a folder: give the folder of the images")
    if path.is_dir():
        if label is not None or text is not None:
            raise ValueError("--label and --text are for a table: an audit's folder says itself which columns it has")
        return _audit(path, root)
    if not path.is_file():
        raise DataError(f"{path} does not exist: give the folder of a finished audit, or a Parquet table")
    return _table(path, label, text, root)


def _audit(folder: Path, images: Path | None) -> Source:
    if not (folder / WORDS).exists():
        raise not_an_audit(folder)
    words = read_json(folder / WORDS, lost="the findings are lost", repair=REPAIR)
    check_file(folder / TABLE, lost="the hardness table is lost", repair=REPAIR)
    mark = read_json(folder / MARK, lost="how the audit was called is lost", repair=REPAIR) if (folder / MARK).exists() else {}
    columns = read_columns(folder / TABLE)
    roles = find_roles(columns, {})
    pictured = (folder / PICTURES).exists() or images is not None
    kind = "text" if "text" in roles else "table" if "fields" in roles else "images" if pictured else "features"
    return Source(
        table=folder / TABLE,
        log=folder / LOG,
        name=str(words["name"]),
        data_hash=str(words["data_hash"]),
        kind=kind,
        columns=columns,
        roles=roles,
        classes=list(map(str, words["classes"])),
        images=images,
        folder=folder,
        call=mark.get("call"),
        facts=words.get("facts", {}),
    )


def _table(path: Path, label: str | None, text: str | None, images: Path | None) -> Source:
    columns = read_columns(path)
    given = {role: name for role, name in (("label", label), ("text", text)) if name is not None}
    for role, name in given.items():
        if name not in columns:
            raise DataError(f"{path} has no column {name!r} that can be a {role}; it has {_listed(columns)}")
    roles = find_roles(columns, given)
    if "label" not in roles:
        raise DataError(f"{path} has no column of labels: name it with --label; it has {_listed(columns)}")
    kind = "images" if images is not None and "path" in roles else "text" if "text" in roles else "table"
    return Source(
        table=path,
        log=path.with_name(f"{path.stem}.{LOG}"),
        name=path.stem,
        data_hash=_hash(path),
        kind=kind,
        columns=columns,
        roles=roles,
        images=images,
    )


def read_columns(path: Path) -> dict[str, Column]:
    """The columns of a Parquet file that hold a number, text, flag or time per row; others are not loaded."""
    try:
        schema = pyarrow.parquet.read_schema(path)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # the last: of a column's name
        raise DataError(f"{path} cannot be read as Parquet ({error}): give the folder of an audit, or a Parquet file") from error
    found: dict[str, Column] = {}
    for one in schema:
        kind = _kind(one.type)
        if kind and one.name.lower() not in {name.lower() for name in found}:  # SQL names are case-insensitive
            about = {
                key.decode("utf-8", "replace"): value.decode("utf-8", "replace") for key, value in (one.metadata or {}).items()
            }
            found[one.name] = Column(one.name, kind, about.get("meaning", ""), about.get("direction", ""))
    if not found:
        raise DataError(f"{path} has no column that can be shown")
    return found


def find_roles(columns: Mapping[str, Column], given: Mapping[str, str]) -> dict[str, str]:
    """The column of each role: as given, or by its name."""
    roles = dict(given)
    for role, names in ROLES.items():
        fits = (name for name in names if name in columns and name not in roles.values() and _can_be(role, columns[name]))
        found = next(fits, None)
        if role not in roles and found is not None:
            roles[role] = found
    if "x" not in roles or "y" not in roles:
        roles = {role: name for role, name in roles.items() if role not in ("x", "y")}
    return roles


def evidence_file(source: Source) -> pyarrow.parquet.ParquetFile | None:
    """The neighbors and probabilities of each example, if the audit stored them."""
    file = source.file(EVIDENCE)
    if file is None:
        return None
    check_file(file, lost="neighbors and probabilities are lost", repair=REPAIR)
    return pyarrow.parquet.ParquetFile(file)


def evidence_classes(file: pyarrow.parquet.ParquetFile) -> list[str]:
    """The class names that the evidence refers to."""
    names: list[str] = json.loads((file.schema_arrow.metadata or {}).get(b"classes", b"[]"))
    return names


def _can_be(role: str, column: Column) -> bool:
    return column.kind == ("text" if role in TEXTUAL else "number" if role in NUMERIC else column.kind)


def _kind(kind: pa.DataType) -> str:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_boolean(kind):
        return "flag"
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "number"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "text"
    return "time" if pa.types.is_temporal(kind) else ""


def _hash(path: Path) -> str:
    digest = hashlib.blake2b(digest_size=8)
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _listed(columns: Mapping[str, Column]) -> str:
    names = list(columns)
    return ", ".join(repr(name) for name in names[:20]) + (", ..." if len(names) > 20 else "")
