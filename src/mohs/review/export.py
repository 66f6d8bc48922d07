"""Export: the labels with the decisions applied, as CSV, Parquet or COCO-like JSON, or the decisions alone as decisions.csv.

    labels      one row per example: id, path, label (empty if excluded), previous, decision, by, at
    decisions   one row per decision, as the report writes it: `mohs apply` reads it

Rows are made by DuckDB and written in batches, so that 10⁶ examples take seconds and little memory.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from mohs._core.plain_text import to_cell
from mohs.audit.decisions import COLUMNS
from mohs.data.corrections import earlier_corrections, on_top
from mohs.review.query import quoted
from mohs.review.review import Review

BATCH = 50_000
FORMATS = {  # what is exported: media type and file name
    "csv": ("text/csv; charset=utf-8", "labels.csv"),
    "parquet": ("application/vnd.apache.parquet", "labels.parquet"),
    "json": ("application/json", "labels.json"),
    "decisions": ("text/csv; charset=utf-8", "decisions.csv"),
}

IMAGE = "to_json({'id': id, 'file_name': path})::VARCHAR"
PLACED = (
    "'id': count(label) OVER (ORDER BY row), 'image_id': id, 'category_id': coalesce(list_position($1::VARCHAR[], label), 0) - 1"
)
ANNOTATION = f"""(CASE WHEN label IS NULL THEN NULL WHEN decision = '' THEN to_json({{{PLACED}}})
    ELSE to_json({{{PLACED}, 'previous': previous, 'decision': decision, 'by': "by"}}) END)::VARCHAR"""


def export(review: Review, kind: str) -> Iterator[bytes]:
    """The file's bytes, piece by piece."""
    if kind == "decisions":
        return _decisions(review)
    if kind == "json":
        return _json(review)
    return _table(review, kind)


def label_batches(review: Review, chosen: str = "", parameters: Sequence[Any] = ()) -> pa.RecordBatchReader:
    """The labels, one row per example in the table's order, in batches; chosen: SQL of what to make of id, path, label, ..."""
    cursor = review.database.connection.cursor()
    ids, decisions, labels, names, times = [], [], [], [], []
    for id_, made in review.decided():
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
    path = quoted(roles["path"]) if "path" in roles else id_
    label = quoted(roles["label"])
    columns = f'id, {"path, " if "path" in roles else ""}label, previous, decision, "by", "at"'
    sql = f"""WITH labels AS (
        SELECT e.rowid AS row, {id_} AS id, {path} AS path, CASE WHEN f.row IS NULL THEN {label} ELSE f.label END AS label,
        {label} AS previous, coalesce(f.decision, '') AS decision, coalesce(f."by", '') AS "by", coalesce(f."at", '') AS "at"
        FROM examples e LEFT JOIN final f ON f.row = e.rowid)
        SELECT {chosen or columns} FROM labels ORDER BY row"""
    return cursor.sql(sql, params=list(parameters)).to_arrow_reader(BATCH)


def all_labels(review: Review) -> pa.Table:
    """The labels with the decisions applied, on top of the corrections that the audit was itself given."""
    made, earlier = label_batches(review).read_all(), earlier_corrections(review.source.call)
    return made if earlier is None else on_top(made, earlier)


def _table(review: Review, kind: str) -> Iterator[bytes]:
    reader, out = label_batches(review), io.BytesIO()
    if earlier_corrections(review.source.call) is not None:
        reader = all_labels(review).to_reader(BATCH)
    make: Any = pyarrow.csv.CSVWriter if kind == "csv" else pyarrow.parquet.ParquetWriter
    with make(out, reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)
            yield _taken(out)
    yield _taken(out)


def _json(review: Review) -> Iterator[bytes]:
    """Images, annotations and categories, as in COCO's files; an excluded example has no annotation."""
    info = {"description": review.source.name, "data_hash": review.source.data_hash}
    categories = [{"id": i, "name": name} for i, name in enumerate(review.classes)]
    yield f'{{"info":{json.dumps(info)},"categories":{json.dumps(categories)},"images":['.encode()
    yield from _joined(label_batches(review, IMAGE))
    yield b'],"annotations":['
    yield from _joined(label_batches(review, ANNOTATION, [review.classes]))
    yield b"]}\n"


def _decisions(review: Review) -> Iterator[bytes]:
    """decisions.csv as the report writes it, with the reviewer and the time."""
    yield ("\ufeff" + _row([*COLUMNS, "by", "at"])).encode()
    for id_, made in review.decided():
        yield _row([id_, review.source.data_hash, made.label, made.decision, made.new_label, made.by, made.at]).encode()


def _row(cells: list[str]) -> str:
    quoted_cells = (to_cell(cell).replace('"', '""') for cell in cells)
    return ",".join(f'"{cell}"' for cell in quoted_cells) + "\r\n"


def _joined(batches: pa.RecordBatchReader) -> Iterator[bytes]:
    """The only column's texts with commas between all of them; missing ones are skipped."""
    comma = ""
    for batch in batches:
        texts = batch.column(0).drop_null().to_pylist()
        if texts:
            yield (comma + ",".join(texts)).encode()
            comma = ","


def _taken(out: io.BytesIO) -> bytes:
    data = out.getvalue()
    out.seek(0)
    out.truncate()
    return data
