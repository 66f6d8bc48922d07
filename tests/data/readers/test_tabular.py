from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch
from PIL import Image

from mohs._core.errors import DataError
from mohs.data.open_data import open_data
from mohs.data.readers.tabular import table

Save = Callable[..., Path]


def csv(folder: Path, text: str, name: str = "rows.csv") -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def test_numeric_columns_are_features(tmp_path: Path) -> None:
    data = table(csv(tmp_path, "id,a,b,label,remark\n7,1,2.5,yes,x\n8,3,4,no,x\n9,5,6,yes,x\n"))
    assert (data.name, data.classes) == ("rows", ["no", "yes"])
    assert data.train.inputs.tolist() == [[1, 2.5], [3, 4], [5, 6]]  # type: ignore[union-attr]
    assert data.train.labels.tolist() == [1, 0, 1]
    assert data.train.keys == [7, 8, 9]
    assert data.notes == ["constant columns dropped: 'remark'"]


def test_whole_numbers_beyond_float64_are_rounded(tmp_path: Path) -> None:
    """Ids of 18 digits, as those of tweets, have no exact float64."""
    rows = {"tweet": [92981238880681984, 92981238880681985, 7], "length": [3, 1, 2], "label": ["a", "b", "a"]}
    pa.parquet.write_table(pa.table(rows), tmp_path / "tweets.parquet")
    inputs = table(tmp_path / "tweets.parquet", label="label").train.inputs
    assert inputs[:, 0].tolist() == pytest.approx([92981238880681984.0, 92981238880681984.0, 7])  # type: ignore[union-attr]


def test_labels_are_read_as_they_are_written(tmp_path: Path) -> None:
    assert table(csv(tmp_path, "a,y\n1,10\n2,9\n3,10\n")).classes == [9, 10]
    assert table(csv(tmp_path, "a,y\n1,007\n2,9\n")).classes == ["007", "9"]
    assert table(csv(tmp_path, "a,y\n1,NA\n2,null\n")).classes == ["NA", "null"]
    assert table(csv(tmp_path, "a;kind\n1;ä\n2;b\n"), label="kind").classes == ["b", "ä"]
    assert table(csv(tmp_path, "\ufeffy\ta\nu\t1\nv\t2\n", "rows.tsv")).classes == ["u", "v"]
    parquet = pa.table({"class": pa.array(["q", "p", "q"]).dictionary_encode(), "a": [1.0, 2, 3]})
    pyarrow.parquet.write_table(parquet, tmp_path / "rows.parquet")
    assert table(tmp_path / "rows.parquet").classes == ["p", "q"]
    floats = pa.table({"target": [1.0, None, 0.0], "a": [1.0, 2, 3]})
    pyarrow.parquet.write_table(floats, tmp_path / "rows.parquet")
    data = table(tmp_path / "rows.parquet")
    assert (data.classes, [one.path.rpartition(" row ")[2] for one in data.left_out]) == ([0, 1], ["1"])


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("sep=;\na;b;label\n1;2,5;x\n3;4;y\n", None),
        ("a;b, cm;Label \n1;2,5;x\n3;4;y\n", None),
        ('"a, cm";"b, cm";"c; d";kind\n1;2,5;0;x\n3;4;0;y\n', "Kind"),
        ('a;"b\n(cm)";kind\n1;2,5;x\n3;4;y\n', "kind"),
        ("a, b, label\n1, 2.5, x\n3, 4, y\n", None),
        ("a,,b,label,,\n1,,2.5,x,,\n3,,4,y,,\n", None),
    ],
)
def test_headers_as_spreadsheets_write_them(tmp_path: Path, text: str, label: str | None) -> None:
    data = table(csv(tmp_path, text), label=label)
    assert [str(one).strip() for one in data.classes] == ["x", "y"]
    assert data.train.inputs[:, :2].tolist() == [[1, 2.5], [3, 4]]  # type: ignore[union-attr]


@pytest.mark.parametrize("text", ["text", None])
def test_a_late_byte_that_is_not_utf8_is_named_with_its_line(tmp_path: Path, text: str | None) -> None:
    """Arrow makes a column of bytes of such strings, which is no column of images."""
    rows = "".join(f"{'ab'[i % 2]},a remark of several words {i}\n" for i in range(2000))
    (tmp_path / "rows.csv").write_bytes(f"label,text\n{rows}a,Straße\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"rows\.csv, line 2002: byte 0xdf is not UTF-8"):
        table(tmp_path / "rows.csv", text=text)


def test_rows_without_a_label_are_skipped_and_counted(tmp_path: Path) -> None:
    data = table(csv(tmp_path, "a,label\n1,x\n2,\n3,y\n"))
    assert data.train.keys == [0, 2]
    assert [(one.path, one.reason) for one in data.left_out] == [(f"{tmp_path}/rows.csv, line 3", "no label")]


def test_a_row_is_named_by_its_line(tmp_path: Path) -> None:
    data = table(csv(tmp_path, 'a,label\n"1\n\n1",x\n\n2,\n3,y\n'))
    assert [one.path for one in data.left_out] == [f"{tmp_path}/rows.csv, line 6"]
    (tmp_path / "rows.jsonl").write_text('{"a": 1, "label": "x"}\n\n{"a": 2}\n{"a": 3, "label": "y"}\n')
    assert [one.path for one in table(tmp_path / "rows.jsonl").left_out] == [f"{tmp_path}/rows.jsonl, line 3"]


def test_empty_rows_at_the_end_are_no_rows(tmp_path: Path) -> None:
    data = table(csv(tmp_path, "a,b,label\n1,x,p\n,,\n3,y,q\n,,\n,,\n"))
    assert (data.train.keys, [one.path for one in data.left_out]) == ([0, 2], [f"{tmp_path}/rows.csv, line 3"])
    with pytest.raises(DataError, match="no rows below the header"):
        table(csv(tmp_path, "a,label\n,\n,\n"))


def test_columns_of_which_several_could_be_the_labels(tmp_path: Path) -> None:
    text = "a,class,y,target\n1.5,u,3,p\n2.5,v,4,q\n3.5,v,5,q\n"
    note = "the labels are column 'target', not 'class': label (--label) names another"
    assert (table(csv(tmp_path, text)).classes, table(csv(tmp_path, text)).notes[0]) == (["p", "q"], note)
    chosen = table(csv(tmp_path, text), label="class")
    assert (chosen.classes, note in chosen.notes) == (["u", "v"], False)


def test_a_tsv_file_with_commas_is_read(tmp_path: Path) -> None:
    (tmp_path / "rows.tsv").write_text("a,label\n1.5,x\n2.5,y\n")
    assert table(tmp_path / "rows.tsv").train.inputs.tolist() == [[1.5], [2.5]]  # type: ignore[union-attr]


def test_lists_are_features(tmp_path: Path) -> None:
    rows = {"embedding": [[1.0, 2.0], [3.0, 4.0]], "label": ["a", "b"], "age": [3, 4]}
    pyarrow.parquet.write_table(pa.table(rows), tmp_path / "rows.parquet")
    data = table(tmp_path / "rows.parquet")
    assert data.train.inputs.tolist() == [[1, 2], [3, 4]]  # type: ignore[union-attr]
    assert data.notes == ["columns not used: age"]
    ragged = pa.table({"embedding": [[1.0, 2.0], [3.0]], "label": ["a", "b"]})
    pyarrow.parquet.write_table(ragged, tmp_path / "rows.parquet")
    with pytest.raises(DataError, match="row 1: embedding has 1 numbers, that of row 0 has 2"):
        table(tmp_path / "rows.parquet")
    hole = pa.table({"features": [[1.0, 2.0], [3.0, float("nan")]], "label": ["a", "b"]})
    pyarrow.parquet.write_table(hole, tmp_path / "rows.parquet")
    with pytest.raises(DataError, match="row 1: column 'features', entry 1 is missing, NaN or infinite"):
        table(tmp_path / "rows.parquet")


def test_paths_are_images_beside_the_file(tmp_path: Path, save: Save) -> None:
    for i in range(4):
        save(tmp_path / "img" / f"{i}.png")
    (tmp_path / "img" / "bad.png").write_text("x")
    text = "path,label\nimg/0.png,a\nimg/1.png,b\nimg/gone.png,a\n,b\nimg/2.png,\nimg/bad.png,b\nimg/3.png,a\n"
    train = table(csv(tmp_path, text)).train
    assert train.keys == [0, 1, 6]
    assert train.labels.tolist() == [0, 1, 0]
    assert np.array_equal(train.inputs[torch.tensor([2])][0].permute(1, 2, 0), np.asarray(Image.open(tmp_path / "img" / "3.png")))
    assert [(Path(one.path).name, one.reason) for one in train.left_out] == [
        ("rows.csv, line 6", "no label"),
        ("gone.png", "no such file (line 4)"),
        ("rows.csv, line 5", "no path"),
        ("bad.png", "not an image that Pillow can read"),
    ]


def test_paths_written_on_windows(tmp_path: Path, save: Save) -> None:
    for name in ("cat/1.png", "cat/2.png", "dog/1.png"):
        save(tmp_path / "photos" / name)
    for column in ("path", "where"):
        rows = f"{column},label\nphotos\\cat\\1.png,a\nphotos\\cat\\2.png,a\nphotos\\dog\\1.png,b\nphotos\\no.png,a\n"
        data = table(csv(tmp_path, rows))
        assert (data.train.kind, len(data.train), len(data.left_out)) == ("images", 3, 1)
        assert data.train.paths == [str(tmp_path / "photos" / name) for name in ("cat/1.png", "cat/2.png", "dog/1.png")]
    with pytest.raises(DataError, match=r"'C:.*1\.png' is on a drive of another computer, so write paths relative to the file"):
        table(csv(tmp_path, "path,label\nC:\\me\\1.png,a\nC:\\me\\2.png,b\n"))


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("rows.txt", r"rename it to \.tsv \(tabs\) or \.csv"),
        ("rows.xlsx", "save the spreadsheet as CSV"),
        ("a.json", "JSON Lines"),
    ],
)
def test_other_files_of_rows_come_with_advice(tmp_path: Path, name: str, advice: str) -> None:
    (tmp_path / name).write_text("a\tlabel\n1\tx\n")
    with pytest.raises(DataError, match=rf"files ending in '\.\w+' are not supported: .*{advice}"):
        open_data(tmp_path / name)


def test_a_class_whose_files_are_all_missing_is_left_out_and_named(tmp_path: Path, save: Save) -> None:
    for i in range(4):
        save(tmp_path / f"{i}.png")
    rows = "path,label\n0.png,a\n1.png,c\n2.png,c\n3.png,a\nx.png,b\ny.png,b\n"
    data = table(csv(tmp_path, rows))
    assert (data.classes, data.train.labels.tolist()) == (["a", "c"], [0, 1, 1, 0])
    assert data.notes == ["class 'b' was left out, without a readable image"]
    assert [one.reason for one in data.left_out] == ["no such file (line 6)", "no such file (line 7)"]
    with pytest.raises(DataError, match="no example of 'b'"):
        open_data(csv(tmp_path, "path,label\n0.png,a\n3.png,a\nx.png,b\n"))


def test_a_class_without_a_text_is_left_out_and_named(tmp_path: Path) -> None:
    data = table(csv(tmp_path, "text,label\na b,x\n,y\nc d,z\n,y\n"))
    assert (data.classes, data.notes) == (["x", "z"], ["class 'y' was left out, without a text"])
    prices = table(csv(tmp_path, "text,label\na b,1.5\n,2.5\nc d,3.5\n"), target="label")
    assert (prices.classes, prices.notes) == ([1.5, 3.5], [])


def test_bytes_are_images(tmp_path: Path) -> None:
    def encoded(level: int) -> bytes:
        file = io.BytesIO()
        Image.new("L", (4, 4), level).save(file, "PNG")
        return file.getvalue()

    cells = [{"bytes": encoded(level), "path": f"{level}.png"} for level in (3, 5)] + [{"bytes": b"x", "path": None}]
    pyarrow.parquet.write_table(pa.table({"image": cells, "label": [0, 1, 1]}), tmp_path / "rows.parquet")
    data = table(tmp_path / "rows.parquet")
    assert data.train.inputs[:, 0, 0, 0].tolist() == [3, 5]  # type: ignore[index, union-attr, call-overload]
    assert data.train.shape == (1, 4, 4)
    assert data.train.paths == ["3.png", "5.png"]
    assert data.left_out[0].path == f"{tmp_path}/rows.parquet, row 2"


def test_a_column_of_existing_images_may_have_any_name(tmp_path: Path, save: Save) -> None:
    for i in range(3):
        save(tmp_path / "images" / f"{i}.png", size=(8, 8))
    rows = csv(tmp_path, "image name,camera,label\n" + "".join(f"images/{i}.png,c{i % 2},{'xy'[i % 2]}\n" for i in range(4)))
    data = table(rows)
    assert (data.train.shape, data.train.keys) == ((3, 8, 8), [0, 1, 2])
    assert data.left_out[0].reason == "no such file (line 5)"
    text = rows.read_text().replace("camera", "text").replace("c0", "some words").replace("c1", "other words")
    assert table(csv(tmp_path, text)).train.kind == "text"


def test_a_leak_among_columns_of_numbers_is_dropped(tmp_path: Path) -> None:
    rows = "".join(f"{i % 7},{i % 2},{i % 5},{'xy'[i % 2]}\n" for i in range(100))
    data = table(csv(tmp_path, f"a,code,b,label\n{rows}"))
    assert data.train.inputs[:3].tolist() == [[0, 0], [1, 1], [2, 2]]  # type: ignore[index]
    assert data.notes == ["LEAK: column 'code' alone predicts 100.0% of the labels, so it was probably made from them: dropped"]
    rows = "".join(f"{i % 2},{'xy'[i % 2]}\n" for i in range(100))
    with pytest.raises(DataError, match=r"no column to learn from beside the label; .* \(LEAK: column 'code'"):
        table(csv(tmp_path, f"code,label\n{rows}"))
    assert table(csv(tmp_path, f"code,label\n{rows}".replace("x", "1").replace("y", "2")), target="label").notes == []


def test_identifiers_and_constants_among_columns_of_numbers_are_dropped(tmp_path: Path) -> None:
    """Such columns are no features, whether other columns miss values or not."""
    rows = "".join(f"{1000 + 3 * i},{i % 7},5,{'xy'[i % 3 % 2]}\n" for i in range(60))
    for text in (f"Customer ID,a,b,label\n{rows}", f"Customer ID,a,b,label\n{rows},,,x\n"):
        data = table(csv(tmp_path, text))
        assert data.notes[0] == "identifier columns dropped: 'Customer ID'"
    data = table(csv(tmp_path, f"Customer ID,a,b,label\n{rows}"))
    assert data.notes[1:] == ["constant columns dropped: 'b'"]
    assert (data.train.inputs[:2].tolist(), data.train.columns) == ([[0], [1]], ["a"])  # type: ignore[index]
    with pytest.raises(DataError, match=r"no column to learn from beside the label; .* \(constant columns dropped: 'b'\)"):
        table(csv(tmp_path, "b,label\n5,x\n5,y\n5,x\n"))


def test_numbers_that_float32_cannot_hold_are_missing(tmp_path: Path) -> None:
    data = table(csv(tmp_path, "a,b,label\n" + "1,2,x\n3,4,y\n" * 9 + "1e300,5,x\n"))
    assert data.notes == ["column 'a': '1e300' among numbers was read as missing"]


def test_a_target_without_numbers_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the target, column 'kind', holds no numbers, but cells such as 'x'"):
        table(csv(tmp_path, "a,kind\n1,x\n2,y\n"), target="kind")


def test_a_column_may_give_the_split(tmp_path: Path) -> None:
    data = table(csv(tmp_path, "a,label,split\n1,x,train\n2,y,test\n3,y,train\n4,x,valid\n5,,test\n"))
    assert {name: part.keys for name, part in data.splits.items()} == {"train": [0, 2], "val": [3], "test": [1]}
    assert data.test.inputs.tolist() == [[2.0]]  # type: ignore[union-attr]
    assert len(data.test.left_out) == 1  # type: ignore[union-attr]
    with pytest.raises(DataError, match=r"rows\.csv, line 3: the split is 'later'; expected train, val or test"):
        table(csv(tmp_path, "a,label,split\n1,x,train\n2,y,later\n"))
    with pytest.raises(DataError, match="line 3: the label is 'z', a class without training rows"):
        table(csv(tmp_path, "a,label,split\n1,x,train\n2,z,test\n3,y,train\n"))


@pytest.mark.parametrize(
    ("text", "label", "message"),
    [
        ("", None, "the file is empty; a header with the names of the columns is expected"),
        ("a,label\n", None, "no rows below the header"),
        ("a,b\n1,2\n", None, "no label column .*: name yours with label .*; its columns: a, b"),
        ("a,label\n1,x\n", "kind", "no column 'kind'; its columns: a, label"),
        ("a,a,label\n1,1,x\n", None, "two columns are called 'a': rename one"),
        ("a,label\n1,\n2,\n", None, "no row with a label"),
        ("name,label\nu,x\nu,y\n", None, "no column to learn from beside the label; its columns: name, label"),
        (
            "path,label\nu.png,x\nv.png,y\n",
            None,
            r"none of the 2 files in column 'path' exists \(the first: .*u\.png\); paths are",
        ),
        (
            "path,label\nu.png,x\nv.png,y\nu.png,y\n",
            None,
            r"line 2, line 4 name the same file, 'u\.png'; 1 file\(s\) are named twice: keep one row for each",
        ),
        ("a,label\n1,x\n2,y,z\n", None, r"rows\.csv, line 3: 3 cells where the header has 2: put cells that hold the separator"),
        ('sep=,\na,label\n\n"1\n2",x\n\n2,y,z\n', None, r"rows\.csv, line 7: 3 cells where the header has 2"),
        (",,label\n1,2,x\n3,4,y\n", None, "two columns have no name: name them; the first line must hold the names"),
        ("# from me\na,label\n1,x\n", None, r"rows\.csv, line 2: 2 cells where the header has 1: remove what is above the line"),
        ("a,b,label\n1,2\n", None, r"rows\.csv, line 2: 2 cells where the header has 3: add empty cells, or close an open quote"),
        ("1.5,red,x\n2.5,blue,y\n", None, "its columns: 1.5, red, x; the first line must hold the names of the columns"),
        ("a label\n1 x\n", None, "the only column: cells are separated by commas, tabs"),
    ],
)
def test_tables_that_are_not_a_data_set(tmp_path: Path, text: str, label: str | None, message: str) -> None:
    with pytest.raises(DataError, match=message):
        table(csv(tmp_path, text), label=label)


def test_files_that_are_not_tables(tmp_path: Path) -> None:
    (tmp_path / "rows.parquet").write_text("x")
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        table(tmp_path / "rows.parquet")
    (tmp_path / "rows.csv").write_bytes(b"a,label\n1,\xff\xfe\n")
    with pytest.raises(DataError, match=r"rows\.csv, line 2: byte 0xff is not UTF-8: save the file as UTF-8"):
        table(tmp_path / "rows.csv")
    parts = pa.table({"label": [0.5, 1.0], "a": [1, 2]})
    pyarrow.parquet.write_table(parts, tmp_path / "rows.parquet")
    with pytest.raises(DataError, match=r"the label of row 0 is 0\.5: labels are strings or integers"):
        table(tmp_path / "rows.parquet")


def test_a_folder_of_shards_is_one_table(tmp_path: Path) -> None:
    for name, rows in [("train-00000-of-00002", [1, 2]), ("train-00001-of-00002", [3, 4]), ("test-00000-of-00001", [5])]:
        shard = pa.table({"a": [float(row) for row in rows], "label": [row % 2 for row in rows]})
        pyarrow.parquet.write_table(shard, tmp_path / f"{name}.parquet")
    data = table(tmp_path)
    assert data.train.inputs.tolist() == [[1], [2], [3], [4]]  # type: ignore[union-attr]
    assert data.test.inputs.tolist() == [[5]]  # type: ignore[union-attr]
    pyarrow.parquet.write_table(pa.table({"b": [1.0], "label": [0]}), tmp_path / "train-x.parquet")
    with pytest.raises(
        DataError, match=r"train-x\.parquet: its columns \(b, label, split\) or their types differ from those of the first"
    ):
        table(tmp_path)


def test_a_quote_that_is_not_closed_joins_no_rows(tmp_path: Path) -> None:
    """Text files with tabs seldom quote their cells, but their texts may begin with a quote."""
    (tmp_path / "a.tsv").write_text('label\ttext\nx\t"Never again\ny\tsaid "good"\nx\t\ny\t"Nice\ny\tb\n')
    data = table(tmp_path / "a.tsv", text="text")
    assert list(data.train.inputs.strings) == ['"Never again', 'said "good"', '"Nice', "b"]  # type: ignore[union-attr]
    assert data.left_out[0].path.endswith("line 4")
    (tmp_path / "a.tsv").write_text('label\ttext\nx\t"two\nlines ""here"""\ny\tb\n')
    assert list(table(tmp_path / "a.tsv", text="text").train.inputs.strings) == ['two\nlines "here"', "b"]  # type: ignore[union-attr]
    for rows in ('"Never again,x\nb,y\n"Nice,x\nc,y', '"Never again,x\nb,y'):
        with pytest.raises(DataError, match=r"rows.csv, line 2: a quote opens a cell and is not closed there"):
            table(csv(tmp_path, f"text,label\n{rows}\n"))
    assert len(table(csv(tmp_path, 'text,label\n"a 5" disk",x\n"b\nc",y\n')).train) == 2
