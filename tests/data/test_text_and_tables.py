"""Text and tables from every source: found or named, indexable, hashed, and refused by networks with advice."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch

from mohs._core.errors import DataError
from mohs.data.examples import Data, Examples, joined
from mohs.data.noise import add_noise
from mohs.data.open_data import open_data
from mohs.data.row_inputs import TableRows, Texts
from mohs.data.split import split
from mohs.data.unlabeled import open_unlabeled
from mohs.data.validate import check_numeric
from mohs.models import scale_of
from mohs.train.resolve import resolve
from mohs.train.run import Run

TEXTS = [f"this film was {word} number {i}" for i, word in enumerate(["good", "bad"] * 6)]
LABELS = ["pos", "neg"] * 6
ROWS = [
    {"age": 20 + i, "income": None if i == 3 else 1.5 * i, "city": ["Rome", "Bonn", "Oslo"][i % 3], "y": LABELS[i]}
    for i in range(12)
]


def write_csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter="\t" if path.suffix == ".tsv" else ",")
        writer.writeheader()
        writer.writerows(rows)


def write_jsonl(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_parquet(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    pyarrow.parquet.write_table(pa.Table.from_pylist(list(rows)), path)


WRITERS = {".csv": write_csv, ".tsv": write_csv, ".jsonl": write_jsonl, ".ndjson": write_jsonl, ".parquet": write_parquet}
Write = Callable[[Path, Sequence[dict[str, Any]]], None]


def texts_of(examples: Examples) -> list[str]:
    return list(examples.inputs[torch.arange(len(examples))])


@pytest.mark.parametrize("ending", WRITERS)
def test_a_column_of_text_is_found_or_named(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"rows{ending}"
    WRITERS[ending](path, [{"Review": text, "stars": i, "label": LABELS[i]} for i, text in enumerate(TEXTS)])
    train = open_data(path).train
    assert (train.kind, train.shape, train.classes, texts_of(train)) == ("text", (), ["neg", "pos"], TEXTS)
    assert train.notes == ["column 'Review' was read as text; columns not used: stars"]
    assert open_data(path, text="stars").train.inputs[torch.tensor([2])] == ["2"]
    WRITERS[ending](path, [{"id": f"a{i}", "q": text, "label": LABELS[i]} for i, text in enumerate(TEXTS)])
    train = open_data(path).train  # the only column that can be an input
    assert (train.kind, train.keys[:2], texts_of(train)) == ("text", ["a0", "a1"], TEXTS)  # type: ignore[index]


@pytest.mark.parametrize("ending", WRITERS)
def test_columns_of_several_types_are_a_table(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"rows{ending}"
    WRITERS[ending](path, ROWS)
    train = open_data(path).train
    assert (train.kind, train.shape, train.classes) == ("table", (3,), ["neg", "pos"])
    part = train.inputs[torch.tensor([4, 3])]
    assert part.column_names == ["age", "income", "city"]
    assert part.to_pylist() == [{"age": 24, "income": 6, "city": "Bonn"}, {"age": 23, "income": None, "city": "Rome"}]
    WRITERS[ending](path, [{key: row[key] for key in ("age", "y")} for row in ROWS])
    assert open_data(path).train.kind == "features"


def test_examples_of_rows_behave_like_others(tmp_path: Path) -> None:
    write_csv(tmp_path / "rows.csv", ROWS)
    for train in (open_data(tmp_path / "rows.csv").train, open_data((TEXTS, LABELS)).train):
        assert isinstance(train.inputs, Texts | TableRows)
        some = train.take(torch.tensor([5, 0]))
        assert (len(some), some.keys, some.labels.tolist()) == (2, [5, 0], train.labels[[5, 0]].tolist())
        assert some.inputs[torch.tensor([1])] == train.inputs[torch.tensor([0])]
        assert train.fingerprint() == train.take(torch.arange(12)).fingerprint()
        assert train.fingerprint() != some.fingerprint()
        swapped = train.take(torch.tensor([1, 0, *range(2, 12)]))
        assert train.fingerprint() != replace(train, inputs=swapped.inputs).fingerprint()
        noisy = add_noise(train, {"name": "symmetric", "rate": 0.5}, seed=0)
        assert torch.equal(noisy.truth, train.labels)  # type: ignore[arg-type]
        rest, held = split(train, 0.25, 0)
        both = joined([rest, held])
        assert both.take(torch.tensor(both.keys).argsort()).fingerprint() == train.fingerprint()
        assert Data(rest, None, held).fingerprint() == f"{rest.fingerprint()}-{held.fingerprint()}"
        with pytest.raises(DataError, match=r"cannot train on (text|table) directly: train with `mohs train`"):
            check_numeric(train)
        _, features, fingerprint = resolve(Run(validation=0), Data(train), device="cpu")
        assert (features.train.kind, len(features.train), fingerprint) == ("features", 12, train.fingerprint())
        with pytest.raises(DataError, match="directly"):
            scale_of(train)
        with pytest.raises(DataError, match=r"image_size \(--image-size\) is for images; these are (text|table)"):
            open_data(train, image_size=8)
    check_numeric(Examples(torch.rand(2, 3), torch.tensor([0, 1]), [0, 1]))


def test_text_in_memory() -> None:
    class Sentences:
        def __len__(self) -> int:
            return len(TEXTS)

        def __getitem__(self, place: int) -> dict[str, str]:
            return {"sentence": TEXTS[place], "class": LABELS[place]}

    given = [
        (TEXTS, LABELS),
        (np.array(TEXTS), LABELS),
        {"text": TEXTS, "labels": LABELS},
        pa.table({"text": TEXTS, "Label": LABELS}),
        Sentences(),
    ]
    for one in given:
        train = open_data(one).train
        assert (train.kind, texts_of(train), train.classes) == ("text", TEXTS, ["neg", "pos"])
    gaps = open_data(([*TEXTS, "", None], [*LABELS, "pos", "neg"])).train
    assert ([one.reason for one in gaps.left_out], len(gaps)) == (["no text", "no text"], 12)


def test_frames_in_memory() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame({"text": TEXTS, "Label": LABELS})
    for given in (frame, (frame["text"], frame["Label"])):
        train = open_data(given).train
        assert (train.kind, texts_of(train), train.classes) == ("text", TEXTS, ["neg", "pos"])
    assert open_data(pandas.DataFrame(ROWS)).train.kind == "table"
    train = open_data(pandas.DataFrame(ROWS).drop(columns=["y"]).assign(kind=LABELS), label="kind").train
    assert (train.kind, train.classes) == ("table", ["neg", "pos"])
    frame["how long"] = pandas.cut(pandas.Series(range(12)), 3)
    frame["day"] = pandas.period_range("2024-01-01", periods=12, freq="D")
    assert open_data(frame.drop(columns="text")).train.kind == "table"


def test_the_index_of_a_frame_names_its_rows() -> None:
    """So that `frame.loc[ids]` are the rows that an audit names, also after a selection or a shuffle."""
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame({"text": TEXTS, "label": LABELS})
    part = frame.sample(frac=1, random_state=0)
    for given in (part, (part["text"].to_frame(), part["label"])):
        train = open_data(given).train
        assert train.keys == part.index.tolist()
        assert texts_of(train) == frame.loc[train.keys, "text"].tolist()
    assert open_data(part.set_axis([f"r{i}" for i in part.index])).train.keys[0] == f"r{part.index[0]}"
    assert open_data(part.assign(id=range(50, 62))).train.keys == list(range(50, 62))  # a column of ids goes first
    assert open_data(part.set_axis([0] * 12)).train.keys == list(range(12))  # names no row
    assert open_data(frame).train.keys == list(range(12))
    with pytest.raises(DataError, match=r"no column 'kind'; its columns: text, label$"):
        open_data(part, label="kind")


def test_blanks_around_labels_do_not_matter(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "text, label\n" + "".join(f"{one}, {label} \n" for one, label in zip(TEXTS, LABELS, strict=True))
    )
    assert open_data(tmp_path / "a.csv").train.classes == ["neg", "pos"]
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    train = open_data(pandas.DataFrame({"text": TEXTS, "label": ["pos ", "  ", *LABELS[2:]]})).train
    assert (train.classes, [one.reason for one in train.left_out]) == (["neg", "pos"], ["no label"])


def test_semicolons_decimal_commas_ids_and_leaks_are_noted(tmp_path: Path) -> None:
    lines = ["nr;height;price;copy;label"]
    for i in range(60):
        price = "?" if i == 7 else f"{i * 1.25:.2f}".replace(".", ",")
        lines.append(f"{100 + i};{1.5 + i * 0.37 % 1:.2f};{price};{'AB'[i % 2]};{i % 2}".replace(".", ","))
    (tmp_path / "a.csv").write_text("\n".join(lines))
    data = open_data(tmp_path / "a.csv")
    assert data.train.kind == "table"
    assert data.train.inputs[torch.tensor([7, 1])].to_pylist()[1]["price"] == 1.25
    assert data.notes == [
        "fields are separated by semicolons",
        "LEAK: column 'copy' alone predicts 100.0% of the labels, so it was probably made from them: dropped",
        "identifier columns dropped: 'nr'",
        "decimal commas (3,14) were read as numbers",
    ]
    (tmp_path / "b.csv").write_text("a;b;label\n1,5;2;x\n2,5;3;y\n3,25;4;x\n")
    data = open_data(tmp_path / "b.csv")
    assert data.train.inputs.tolist() == [[1.5, 2], [2.5, 3], [3.25, 4]]  # type: ignore[union-attr]
    assert (data.train.kind, data.notes[0]) == ("features", "fields are separated by semicolons")


def test_splits_of_a_table_share_their_columns(tmp_path: Path) -> None:
    parts = ["train"] * 8 + ["test"] * 4
    write_csv(tmp_path / "rows.csv", [{**row, "split": part} for row, part in zip(ROWS, parts, strict=True)])
    data = open_data(tmp_path / "rows.csv")
    assert data.test is not None
    assert (len(data.train), len(data.test)) == (8, 4)
    every = torch.arange(4)
    assert data.train.inputs[every].schema == data.test.inputs[every].schema


def test_categories_and_names_are_not_text(tmp_path: Path) -> None:
    rows = [{"title": ["Mr", "Mrs"][i % 2], "name": f"Smith, Mr. John {i}", "age": i * i, "label": i % 3} for i in range(40)]
    write_csv(tmp_path / "a.csv", rows)
    assert open_data(tmp_path / "a.csv").train.kind == "table"
    write_csv(tmp_path / "b.csv", [{"file": f"{i}.txt", "text": text, "label": i % 2} for i, text in enumerate(TEXTS)])
    assert open_data(tmp_path / "b.csv").train.kind == "text"  # the files do not exist beside it


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", "", "the file is empty; one JSON object per line is expected"),
        ("a.csv", "", "the file is empty; a header with the names of the columns is expected"),
        ("a.jsonl", '{"text": "a b c"}\n{"text": "d e f"}\n', "no label column .*: name yours with label .*; its columns: text"),
        ("a.csv", "text,city\na b,c\nd e,f\n", "no label column .*: name yours with label .*; its columns: text, city"),
        (
            "a.jsonl",
            '{"text": "a b", "label": 1}\n{"text": "c", "label": 1}\n',
            "a single class, 1: a classifier needs",
        ),
        ("a.csv", "city,age,label\nRome,1,x\nBonn,,x\n", "a single class, 'x': a classifier needs at least 2"),
        (
            "a.jsonl",
            '{"text": "a", "label": 1}\n\n{"text": \n',
            r"a\.jsonl, line 3: not valid JSON: Expecting value at",
        ),
        ("a.jsonl", '{"text": "a", "label": 1}\n[1, 2]\n', r"a\.jsonl, line 2: a JSON object is expected, got list"),
        ("a.jsonl", '{"a": 1, "label": 1}\n{"label": 0}\n{"a": "b", "label": 1}', r"a\.jsonl, line 3: 'a' has values of several"),
        (
            "a.jsonl",
            '{"text": " ", "label": 1}\n{"text": "", "label": 0}\n',
            "no column to learn from beside the label",
        ),
        ("a.csv", "id,label\n1,x\n2,y\n", "no column to learn from beside the label"),
    ],
)
def test_files_that_are_not_a_data_set(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message):
        open_data(tmp_path / name)


def test_invalid_column_names(tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv", ROWS)
    with pytest.raises(DataError, match="no column 'body' for the text; its columns: age, income, city, y"):
        open_data(tmp_path / "a.csv", text="body")
    with pytest.raises(DataError, match="column 'y' is the label, the split, the key or the group, so it cannot be the text"):
        open_data(tmp_path / "a.csv", text="y")
    (tmp_path / "b.jsonl").write_bytes(b'{"text": "\xff"}\n')
    with pytest.raises(DataError, match=r"b\.jsonl: cannot be read as JSON Lines \(UTF-8 is expected\)"):
        open_data(tmp_path / "b.jsonl")


def test_text_of_the_hub(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="the datasets package is not installed (the hf extra)")
    datasets.disable_progress_bars()
    rows = {"text": TEXTS, "label": [i % 2 for i in range(12)], "label_text": LABELS}
    both = datasets.DatasetDict({"train": datasets.Dataset.from_dict(rows), "test": datasets.Dataset.from_dict(rows)})
    both.save_to_disk(str(tmp_path / "t"))
    for given in (str(tmp_path / "t"), both):
        data = open_data(given)
        assert data.test is not None
        assert (data.train.kind, texts_of(data.train), texts_of(data.test)) == ("text", TEXTS, TEXTS)
    with pytest.raises(DataError, match=r"^data: no column 'kind'; its columns: text, label, label_text"):
        open_data(both["train"], label="kind")
    named = (
        both["train"]
        .cast_column("label", datasets.ClassLabel(names=["neg", "pos"]))
        .rename_columns({"text": "said", "label": "kind"})
    )
    assert open_data(named, text="said").train.classes == ["neg", "pos"]
    assert open_unlabeled(named.select_columns("said"), text="said").train.kind == "text"
    datasets.Dataset.from_list(ROWS).save_to_disk(str(tmp_path / "u"))
    assert open_data(str(tmp_path / "u")).train.kind == "table"
    assert open_data(str(tmp_path / "u"), text="city").train.kind == "text"


@pytest.mark.parametrize("labels", [LABELS, np.array(LABELS), np.array(LABELS, dtype=object)], ids=["list", "strings", "objects"])
def test_a_table_and_labels_apart(labels: Any) -> None:
    """As scikit-learn's users hold them: X and y."""
    columns = pa.Table.from_pylist(ROWS).drop_columns("y")
    train = open_data((columns, labels)).train
    assert train.kind == "table"
    assert [train.classes[k] for k in train.labels.tolist()] == list(labels)
    named = open_data((columns.append_column("label", pa.array(["u", "v", "w"] * 4)), labels)).train
    assert "label" in named.inputs.table.column_names  # type: ignore[union-attr]
    gap = open_data((columns, np.array([np.nan, *labels[1:]], dtype=object))).train
    assert (gap.classes, [one.reason for one in gap.left_out]) == (["neg", "pos"], ["no label"])
    with pytest.raises(DataError, match="data: labels must be strings or integers, all of one type"):
        open_data((columns, [1, *labels[1:]]))
    with pytest.raises(DataError, match=f"data: {len(LABELS)} rows but 2 labels"):
        open_data((columns, labels[:2]))
