"""Export: the labels with the decisions applied, as CSV, Parquet or COCO-like JSON, or the decisions alone as decisions.csv.

    labels      one row per example: id, path, label (empty if excluded), previous, decision, by, at
    decisions   one row per decision, as the report writes it: `mohs apply` reads it

Rows are made by DuckDB and written in batches, so that 10⁶ examples take seconds and little memory.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from mohs._core.plain_text import to_cell
from mohs.audit.decisions import COLUMNS
from mohs.review.query import quoted
from mohs.review.review import Review

BATCH = 50_000
FORMATS = {  # what is exported: media type and file name
    "csv": ("text/csv; charset=utf-8", "labels.csv"),
    "parquet": ("application/vnd.apache.parquet", "labels.parquet"),
    "json": ("application/json", "labels.json"),
    "decisions": ("text/csv; charset=utf-8", "decisions.csv"),
}


def export(review: Review, kind: str) -> Iterator[bytes]:
    """The file's bytes, piece by piece."""
    if kind == "decisions":
        return _decisions(review)
    if kind == "json":
        return _json(review)
    return _table(review, kind)


def label_batches(review: Review) -> pa.RecordBatchReader:
    """The labels, one row per example in the table's order, in batches."""
    cursor = review.database.connection.cursor()
    ids, decisions, labels, names, times = [], [], [], [], []
    for id_, made in review.log.state.decided():
        ids.append(review.row_of(id_))
        decisions.append(made.decision)
        labels.append(None if made.decision == "exclude" else made.new_label or made.label)
        names.append(made.by)
        times.append(made.at)
    text = pa.string()
    cursor.register(
        "final",
        pa.table(
            {
                "row": pa.array(ids, pa.int64()),
                "decision": pa.array(decisions, text),
                "label": pa.array(labels, text),
                "by": pa.array(names, text),
                "at": pa.array(times, text),
            }
        ),
    )
    roles = review.source.roles
    id_ = quoted(roles["id"]) if "id" in roles and review.database.unique else "e.rowid"
    path = f"{quoted(roles['path'])} AS path, " if "path" in roles else ""
    label = quoted(roles["label"])
    sql = f"""SELECT {id_} AS id, {path}CASE WHEN f.row IS NULL THEN {label} ELSE f.label END AS label, {label} AS previous,
        coalesce(f.decision, '') AS decision, coalesce(f."by", '') AS "by", coalesce(f."at", '') AS "at"
        FROM examples e LEFT JOIN final f ON f.row = e.rowid ORDER BY e.rowid"""
    return cursor.execute(sql).to_arrow_reader(BATCH)


def _table(review: Review, kind: str) -> Iterator[bytes]:
    reader, out = label_batches(review), io.BytesIO()
    make: Any = pyarrow.csv.CSVWriter if kind == "csv" else pyarrow.parquet.ParquetWriter
    with make(out, reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)
            yield _taken(out)
    yield _taken(out)


def _json(review: Review) -> Iterator[bytes]:
    """Images, annotations and categories, as in COCO's files; an excluded example has no annotation."""
    number = {name: i for i, name in enumerate(review.classes)}
    info = {"description": review.source.name, "data_hash": review.source.data_hash}
    categories = [{"id": i, "name": name} for name, i in number.items()]
    yield f'{{"info":{json.dumps(info)},"categories":{json.dumps(categories)},"images":['.encode()
    for piece in _joined(_images(review)):
        yield piece
    yield b'],"annotations":['
    for piece in _joined(_annotations(review, number)):
        yield piece
    yield b"]}\n"


def _images(review: Review) -> Iterator[list[str]]:
    for batch in label_batches(review):
        names = batch.column("path" if "path" in batch.schema.names else "id").to_pylist()
        ids = batch.column("id").to_pylist()
        yield [f'{{"id":{_js(id_)},"file_name":{_js(name)}}}' for id_, name in zip(ids, names, strict=True)]


def _annotations(review: Review, number: dict[str, int]) -> Iterator[list[str]]:
    place = 0
    for batch in label_batches(review):
        columns = (batch.column(name).to_pylist() for name in ("id", "label", "previous", "decision", "by"))
        made = []
        for id_, label, previous, decision, by in zip(*columns, strict=True):
            if label is not None:
                place += 1
                more = f',"previous":{_js(previous)},"decision":{_js(decision)},"by":{_js(by)}' if decision else ""
                made.append(f'{{"id":{place},"image_id":{_js(id_)},"category_id":{number.get(label, -1)}{more}}}')
        yield made


def _decisions(review: Review) -> Iterator[bytes]:
    """decisions.csv as the report writes it, with the reviewer and the time."""
    yield ("\ufeff" + _row([*COLUMNS, "by", "at"])).encode()
    for id_, made in review.log.state.decided():
        yield _row([id_, review.source.data_hash, made.label, made.decision, made.new_label, made.by, made.at]).encode()


def _row(cells: list[str]) -> str:
    quoted_cells = (to_cell(cell).replace('"', '""') for cell in cells)
    return ",".join(f'"{cell}"' for cell in quoted_cells) + "\r\n"


def _joined(parts: Iterator[list[str]]) -> Iterator[bytes]:
    """The parts with commas between all of their entries."""
    first = True
    for part in parts:
        if part:
            yield (("" if first else ",") + ",".join(part)).encode()
            first = False


def _js(value: Any) -> str:
    return json.dumps(value if value is None or isinstance(value, str | int | float) else str(value))


def _taken(out: io.BytesIO) -> bytes:
    data = out.getvalue()
    out.seek(0)
    out.truncate()
    return data
