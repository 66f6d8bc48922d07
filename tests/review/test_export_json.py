"""The COCO-like export: DuckDB writes the JSON, so that names which mean harm and missing labels must survive it."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from mohs.review.export import export
from mohs.review.review import open_review
from mohs.review.source import open_source

NAMES = ['quote " and \\ backslash', "</script>", "line\nbreak", "ü\u202e☃"]


def test_json_has_every_example_once_and_decided_ones_with_their_decision(tmp_path: Path) -> None:
    labels = [NAMES[i % 4] if i != 7 else None for i in range(12)]
    table = pa.table({"id": [f"{name} {i}" for i, name in enumerate(NAMES * 3)], "label": labels, "path": NAMES * 3})
    pyarrow.parquet.write_table(table, tmp_path / "table.parquet")
    review = open_review(open_source(tmp_path / "table.parquet"))
    review.decide([2], "exclude", "ada")
    review.decide([5], "change", 'b"ob', NAMES[0])
    made = json.loads(b"".join(export(review, "json")))
    review.close()

    assert made["images"] == [{"id": f"{name} {i}", "file_name": name} for i, name in enumerate(NAMES * 3)]
    number = {one["name"]: one["id"] for one in made["categories"]}
    assert sorted(number) == sorted(NAMES)
    expected = [
        {"image_id": f"{NAMES[i % 4]} {i}", "category_id": number[NAMES[0] if i == 5 else NAMES[i % 4]]}
        | ({"previous": NAMES[1], "decision": "change", "by": 'b"ob'} if i == 5 else {})
        for i in range(12)
        if i not in (2, 7)
    ]
    assert [{name: value for name, value in one.items() if name != "id"} for one in made["annotations"]] == expected
    assert [one["id"] for one in made["annotations"]] == list(range(1, 11))
