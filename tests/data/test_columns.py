"""Roles of a table's columns: what is used, what is dropped, and what the notes say."""

from __future__ import annotations

import datetime as dt
import uuid

import numpy as np
import pyarrow as pa
import pytest

from mohs.data.cells import has_decimal_commas, parse_dates, parse_numbers, parse_times
from mohs.data.columns import USED, Column, from_table, infer_columns, looks_like_text, predicted_alone, to_table

ROWS = 400
ROLES = {
    "row": "id",
    "uid": "id",
    "user": "id",
    "decimal": "numeric",
    "thousand": "numeric",
    "percent": "numeric",
    "color": "categorical",
    "zip": "categorical",
    "flag": "boolean",
    "date": "date",
    "stamp": "date",
    "same": "constant",
    "void": "constant",
    "copy": "leak",
    "score": "leak",
    "comment": "text",
}


@pytest.fixture
def labels() -> np.ndarray:
    return np.random.default_rng(1).integers(0, 3, ROWS)


@pytest.fixture
def german(labels: np.ndarray) -> pa.Table:
    """Every cell as a string, with decimal commas and a twentieth of the cells missing."""
    draw = np.random.default_rng(0)

    def cell(value: str) -> str:
        return value if draw.random() > 0.05 else str(draw.choice(["NA", "?", "-", "", "null"]))

    def row(i: int) -> dict[str, str]:
        day = dt.date(2020, 1, 1) + dt.timedelta(int(draw.integers(0, 900)))
        return {
            "row": str(i + 1),
            "uid": str(uuid.UUID(int=int(draw.integers(1 << 60)))),
            "user": f"user_{draw.integers(10**7)}",
            "decimal": cell(f"{draw.normal():.2f}".replace(".", ",")),
            "thousand": cell(f"{draw.integers(1000, 9_999_999):,}".replace(",", ".")),
            "percent": f"{draw.integers(1, 90)} %",
            "color": cell(str(draw.choice(["red", "green", "blue"]))),
            "zip": f"{draw.integers(0, 60):05d}",
            "flag": cell(str(draw.choice(["ja", "nein"]))),
            "date": cell(day.strftime("%d.%m.%Y")),
            "stamp": cell(day.strftime("%Y-%m-%d %H:%M:%S")),
            "same": "x",
            "void": "",
            "copy": ["cat", "dog", "cow"][labels[i]] + "_code",
            "score": f"{labels[i] * 10 + draw.random():.3f}".replace(".", ","),
            "comment": " ".join(draw.choice(["alpha", "beta", "gamma", "delta", "eps"], draw.integers(4, 9))),
        }

    return pa.Table.from_pylist([row(i) for i in range(ROWS)])


def test_roles_by_the_values(german: pa.Table, labels: np.ndarray) -> None:
    columns, notes = infer_columns(german, labels)
    assert {column.name: column.role for column in columns} == ROLES
    by_name = {column.name: column for column in columns}
    assert np.nanmin(by_name["thousand"].values) >= 1000
    assert np.nanmax(np.abs(by_name["decimal"].values)) < 10
    assert notes == [
        "LEAK: column 'copy' alone predicts 100.0% of the labels, so it was probably made from them: dropped",
        "LEAK: column 'score' alone predicts 100.0% of the labels, so it was probably made from them: dropped",
        "identifier columns dropped: 'row', 'uid', 'user'",
        "constant columns dropped: 'same', 'void'",
        "decimal commas (3,14) were read as numbers",
    ]
    without = {column.name: column.role for column in infer_columns(german)[0]}
    assert (without["copy"], without["score"]) == ("categorical", "numeric")  # leaks need labels


def test_an_arrow_table_keeps_the_roles(german: pa.Table) -> None:
    columns, _ = infer_columns(german)
    used = [column for column in columns if column.role in USED]
    for rows in (slice(None), slice(3, 5)):
        again = from_table(to_table(columns)[rows])
        assert [(one.name, one.role) for one in again] == [(one.name, one.role) for one in used]
        for one, other in zip(again, used, strict=True):
            if one.role in ("text", "categorical"):
                assert one.values.tolist() == other.values[rows].tolist()
                assert one.levels == other.levels
            else:
                np.testing.assert_allclose(one.values, other.values[rows], atol=1e-5)


def test_typed_columns() -> None:
    n = 120
    table = pa.table(
        {
            "whole": pa.array([1, 2, None] * 40),
            "time": [dt.datetime(2020, 1, 1 + i % 28) for i in range(n)],
            "kind": pa.array(["u", "v", None] * 40).dictionary_encode(),
            "truth": [True, None, False] * 40,
            "lists": [["a"]] * n,
            "decimal": pa.array([1.5] * (n - 1) + [2.25]).cast(pa.decimal128(5, 2)),
            "ymd": [20200101 + i % 28 for i in range(n)],
            "infinite": [float("inf"), *np.linspace(0, 1, n - 1)],
            "nothing": pa.nulls(n),
        }
    )
    columns, notes = infer_columns(table)
    roles = ["numeric", "date", "categorical", "boolean", "unsupported", "numeric", "date", "numeric", "constant"]
    assert [column.role for column in columns] == roles
    assert np.isnan(columns[7].values[0])
    assert columns[6].values[1] - columns[6].values[0] == 1
    assert notes == [
        "column 'infinite': 'inf' among numbers was read as missing",
        "constant columns dropped: 'nothing'",
        "columns of unsupported types dropped: 'lists'",
    ]


def test_numbers_that_are_infinite_in_float32_are_missing() -> None:
    numbers = [1e300, *np.linspace(0, 1, 99)]
    for cells in (pa.chunked_array([numbers]), pa.chunked_array([[str(one) for one in numbers]])):
        (column,), notes = infer_columns(pa.table({"a": cells}))
        assert (column.role, np.isnan(column.values).tolist()) == ("numeric", [True] + [False] * 99)
        assert notes == ["column 'a': '1e+300' among numbers was read as missing"]


def test_a_column_that_nearly_gives_the_labels_is_kept_with_a_note() -> None:
    labels = np.arange(400) % 2
    close = labels.copy()
    close[:8] = 1 - close[:8]
    ((column,), notes) = infer_columns(pa.table({"close": close}), labels)
    assert column.role == "numeric"
    assert notes == ["column 'close' alone predicts 98.0% of the labels: if it was made from them, remove it"]
    assert infer_columns(pa.table({"close": close}), np.where(np.arange(400) < 40, labels, -1))[1] == []  # too few labels


def test_predictions_agree_with_the_known_classes() -> None:
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 4, 3000)
    right, of_class = predicted_alone(labels + draw.normal(0, 0.01, 3000), labels, categories=False)
    assert min(right, of_class) > 0.99
    right, _ = predicted_alone(draw.normal(size=3000), labels, categories=False)
    assert abs(right - 0.25) < 0.05
    right, of_class = predicted_alone(np.where(labels == 0, np.nan, 1.0), labels, categories=True)
    assert abs(right - 0.5) < 0.05
    assert abs(of_class - 0.5) < 0.01


def test_numbers_and_dates() -> None:
    plain = ["1", "-2.5", "1e3", "1,234.5", "3,14", "12 %", "$5", "(7)", "1 234", "x", "inf"]
    found = [1, -2.5, 1000, 1234.5, 3.14, 12, 5, -7, 1234, np.nan, np.nan]
    np.testing.assert_array_equal(parse_numbers(plain), found)
    np.testing.assert_array_equal(parse_numbers(["1.234", "1.234,5", "0,5"], decimal_comma=True), [1234, 1234.5, 0.5])
    assert parse_numbers(["1.234", "2"]).tolist() == [1.234, 2]
    days, form = parse_dates(["1970-01-02", "1970-02-01"]) or (None, "")
    assert (list(days if days is not None else ()), form) == ([1, 31], "%Y-%m-%d")
    zoned = parse_dates(["1970-01-02T00:00:00+01:00", "1970-01-03T12:00:00Z"])
    assert zoned is not None
    np.testing.assert_allclose(zoned[0], [23 / 24, 2.5])
    assert parse_dates(["red", "green"]) is None
    assert has_decimal_commas(pa.table({"a": ["1,5", "2,25"], "b": ["1.5", "x y"]}))
    assert not has_decimal_commas(pa.table({"a": ["1.5", "1,234"], "b": [1.0, 2.0]}))


def test_numbers_with_a_unit() -> None:
    np.testing.assert_array_equal(parse_numbers(["170 cm", "1,065.5 cm", "tall"]), [170, 1065.5, np.nan])
    np.testing.assert_array_equal(parse_numbers(["1.234,5 km/h", "2,5 km/h"], decimal_comma=True), [1234.5, 2.5])
    assert np.isnan(parse_numbers(["170 cm", "2 m"])).all()  # two units
    assert np.isnan(parse_numbers(["007A", "012A"])).all()  # codes
    np.testing.assert_array_equal(parse_numbers(["4G", "500"]), [np.nan, 500])  # the 4 is not of the unit of the 500
    assert has_decimal_commas(pa.table({"a": ["1,5 kg", "2,25 kg"]}))
    columns, notes = infer_columns(pa.table({"size": [f"{100 + i / 4} cm" for i in range(ROWS)]}))
    assert ([column.role for column in columns], notes) == (["numeric"], [])


def test_dates_of_several_forms_in_one_column() -> None:
    days, form = parse_dates(["1970-01-02", "03.01.1970", "4.1.1970", "Jan 5, 1970"]) or (None, "")
    assert days is not None
    np.testing.assert_array_equal(days, [1, 2, 3, 4])
    assert form == "%d.%m.%Y"
    assert parse_dates(["1970-01-02", "1.5.7", "02.01.1970"]) is None
    assert parse_dates(["AB-12345", "CD.56789"]) is None


def test_notes_on_cells_and_dates_that_are_unclear() -> None:
    cells = [str(i / 7) for i in range(200)] + ["many"]
    dates = [f"{1 + i % 5}/{1 + i % 12}/2021" for i in range(201)]
    columns, notes = infer_columns(pa.table({"a": cells, "when": dates}))
    assert [column.role for column in columns] == ["numeric", "date"]
    assert np.isnan(columns[0].values[-1])
    assert notes == [
        "column 'a': 'many' among numbers was read as missing",
        "column 'when': day and month are ambiguous; read as day/month/year",
    ]


def test_text_has_distinct_values_and_several_words() -> None:
    texts = pa.chunked_array([[f"the film number {i}" for i in range(30)]])
    assert looks_like_text(texts)
    assert not looks_like_text(pa.chunked_array([["red", "green"] * 5]))
    assert not looks_like_text(pa.chunked_array([["", None]], pa.string()))
    assert isinstance(infer_columns(pa.table({"t": texts}))[0][0], Column)


def test_times_of_day_are_numbers() -> None:
    assert parse_times(["00:00", "14:05", "23:59:59"]).tolist() == [0, 50_700, 86_399]  # type: ignore[union-attr]
    assert parse_times(["12:00 AM", "12:30 p.m.", "2:05PM"]).tolist() == [0, 45_000, 50_700]  # type: ignore[union-attr]
    assert parse_times(["14:05", "25:00"]) is None
    cells = [f"{i % 24:02d}:{i % 60:02d}" for i in range(ROWS)]
    (column,), notes = infer_columns(pa.table({"time": cells}))
    assert (column.role, column.values[61], notes) == ("numeric", 13 * 3600 + 60, [])


def test_errors_of_spreadsheets_are_missing_values() -> None:
    cells = [f"{i}.{i % 10}" if i % 3 else "#DIV/0!" for i in range(ROWS)]
    (column,), notes = infer_columns(pa.table({"ratio": cells}))
    assert (column.role, np.isnan(column.values).sum(), notes) == ("numeric", 134, [])
