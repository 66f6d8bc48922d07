"""From URL parameters to SQL: unknown columns are refused, values never become SQL, and views find what they ask for."""

from __future__ import annotations

import contextlib
import itertools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("duckdb", reason="needs the review extra")

from mohs._core.errors import DataError
from mohs.review import database as module
from mohs.review.database import Database
from mohs.review.query import DECIDED, QueryError, Spec, parse_spec
from mohs.review.source import Source, open_source

ODD = 'a "quoted"; DROP TABLE examples; --'
N = 500


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    rng = np.random.default_rng(0)
    label = np.array(["cat", "dog", "it's", 'x"; --'])[rng.integers(4, size=N)]
    table = pa.table(
        {
            "id": [f"n{i}" for i in range(N)],
            "label": pa.array([None if i % 50 == 49 else str(one) for i, one in enumerate(label)]),
            "suggested_label": pa.array(np.array(["cat", "dog"])[rng.integers(2, size=N)]),
            "verdict": pa.array(np.array(["mislabeled", "easy"])[rng.integers(2, size=N)]),
            "p_mislabeled": pa.array([None if i % 40 == 0 else p for i, p in enumerate(rng.random(N))], pa.float64()),
            ODD: pa.array(rng.integers(5, size=N)),
            "text": [f"Text NUMBER {i} 100% of it_all" for i in range(N)],
            "nested": pa.array([[1, 2]] * N),
        }
    )
    path = tmp_path_factory.mktemp("odd [name]*") / "ta?ble[1].parquet"
    pyarrow.parquet.write_table(table, path)
    return open_source(path)


@pytest.fixture(scope="module")
def database(source: Source) -> Database:
    return Database(source)


def rows(database: Database, *parameters: tuple[str, str]) -> list[int]:
    _, view = database.view(parse_spec(parameters, database.source.columns))
    found = [int(row) for row in view.rows()]
    assert len(found) == view.total
    return found


def test_roles_and_columns_of_a_foreign_table(source: Source, database: Database) -> None:
    assert "nested" not in source.columns
    assert source.roles["suggested"] == "suggested_label"
    assert (source.kind, database.total, database.unique) == ("text", N, True)


def test_filters_find_what_a_loop_finds(source: Source, database: Database) -> None:
    plain = pyarrow.parquet.ParquetFile(source.table).read().to_pylist()
    assert rows(database, ("is.label", "it's"), ("is.label", 'x"; --'), ("sort", "id")) == sorted(
        (i for i, one in enumerate(plain) if one["label"] in ("it's", 'x"; --')), key=lambda i: plain[i]["id"]
    )
    assert set(rows(database, ("is.label", ""))) == {i for i, one in enumerate(plain) if one["label"] is None}
    assert set(rows(database, ("in.p_mislabeled", "0.2..0.4"))) == {
        i for i, one in enumerate(plain) if one["p_mislabeled"] is not None and 0.2 <= one["p_mislabeled"] <= 0.4
    }
    assert set(rows(database, (f"is.{ODD}", "3"))) == {i for i, one in enumerate(plain) if one[ODD] == 3}
    assert rows(database, ("find", "number 17 100%")) == [17]
    assert rows(database, ("find", "100% of it_all"), ("sort", ODD)) == sorted(range(N), key=lambda i: plain[i][ODD])
    assert rows(database, ("find", "1__% of")) == []  # no wildcards
    assert set(rows(database, ("has", "suggestion"))) == {
        i for i, one in enumerate(plain) if one["label"] is not None and one["label"] != one["suggested_label"]
    }


def test_the_queue_has_the_most_certain_flags_first_then_the_most_uncertain(source: Source, database: Database) -> None:
    plain = pyarrow.parquet.ParquetFile(source.table).read().to_pylist()
    found = [plain[row] for row in rows(database)]
    known = [one for one in found if one["p_mislabeled"] is not None]
    flagged = [one["p_mislabeled"] for one in known if one["verdict"] == "mislabeled"]
    others = [abs(one["p_mislabeled"] - 0.5) for one in known if one["verdict"] != "mislabeled"]
    assert flagged == sorted(flagged, reverse=True)
    assert others == sorted(others)
    first_other = next(i for i, one in enumerate(found) if one["verdict"] != "mislabeled")
    assert all(one["verdict"] != "mislabeled" for one in found[first_other:])


def test_pages_join_to_the_whole_order(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEAD", 50)
    _, view = database.view(Spec(sort="-p_mislabeled"))
    pieces = [view.rows(start, 37).tolist() for start in range(0, N, 37)]
    assert list(itertools.chain.from_iterable(pieces)) == rows(database, ("sort", "-p_mislabeled"))
    assert view.rows(N + 5, 10).tolist() == []


@pytest.mark.parametrize(
    "parameters",
    [
        [("is.nothing", "x")],
        [("in.label", "0..1")],
        [("in.p_mislabeled", "0.5")],
        [("in.p_mislabeled", "a..b")],
        [("decided", "maybe")],
        [("sort", "p_mislabeled; DROP TABLE examples")],
        [("sort", "rowid")],
        [("sample", "-1")],
        [("sample", "1e9")],
        [("is.label", str(i)) for i in range(2000)],
    ],
)
def test_what_cannot_be_asked_is_refused(parameters: list[tuple[str, str]], source: Source) -> None:
    with pytest.raises(QueryError):
        parse_spec(parameters, source.columns)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["is.label", f"is.{ODD}", "find", "set", "decided", "sort", "has", "sample", "other"]),
            st.text(max_size=20) | st.sampled_from(["' OR 1=1 --", '"', "\\", "%", "\x00", *DECIDED]),
        ),
        max_size=4,
    )
)
@settings(max_examples=60, deadline=None)
def test_no_parameter_breaks_the_query(database: Database, parameters: list[tuple[str, str]]) -> None:
    """Any values give an answer or a refusal, and the examples are all there afterwards."""
    try:
        found = rows(database, *parameters)
    except QueryError:
        found = []
    assert all(0 <= row < N for row in found)
    assert database.query("SELECT count(*) FROM examples") == [(N,)]


def test_the_database_reaches_no_file(database: Database, tmp_path: Path) -> None:
    import duckdb

    for sql in (
        f"COPY examples TO '{tmp_path / 'out.csv'}'",
        "SELECT * FROM read_text('/etc/hostname')",
        "SET enable_external_access = true",
        f"ATTACH '{tmp_path / 'x.db'}'",
    ):
        with pytest.raises(duckdb.Error):
            database.query(sql)
    assert list(tmp_path.iterdir()) == []


def test_selections_and_decisions_filter(database: Database) -> None:
    name = database.select(np.array([5, 3, 3, 400], dtype=np.uint32))
    assert sorted(rows(database, ("set", name))) == [3, 5, 400]
    assert name == database.select(np.array([3, 5, 400]))
    assert rows(database, ("set", name), ("find", "number 400")) == [400]
    assert rows(database, ("set", database.select(np.array([], dtype=np.uint32)))) == []
    with pytest.raises(QueryError, match="no longer kept"):
        rows(database, ("set", "0" * 12))
    with pytest.raises(QueryError, match="named by the server"):
        rows(database, ("set", 'x"; DROP TABLE examples'))
    with pytest.raises(ValueError, match="rows must be from 0"):
        database.select(np.array([N]))
    database.set_decided([3, 5], ["accept", "skip"], [True, False])
    assert rows(database, ("decided", "yes")) == [3]
    assert rows(database, ("decided", "disputed")) == [3]
    assert 5 in rows(database, ("decided", "no"))
    database.set_decided([3, 5], [None, None], [False, False])
    assert rows(database, ("decided", "yes")) == []


@pytest.mark.parametrize("damage", ["empty", "text", "cut", "no label", "no rows", "only nested", "name"])
def test_a_hostile_or_useless_parquet_is_an_error_in_words(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    table = pa.table({"label": ["a", "b"] * 50, "text": ["x" * 100] * 100})
    if damage == "no label":
        table = table.drop_columns(["label"])
    if damage == "only nested":
        table = pa.table({"label": [[1]], "text": [{"a": 1}]})
    pyarrow.parquet.write_table(table.slice(0, 0) if damage == "no rows" else table, path)
    data = path.read_bytes()
    if damage in ("empty", "text"):
        path.write_bytes(b"" if damage == "empty" else b"label,text\na,b\n")
    if damage == "name":
        path.write_bytes(data.replace(b"label", b"labe\xff"))
    if damage == "cut":
        path.write_bytes(data[:40] + bytes(60) + data[100:])
    with pytest.raises(DataError):
        Database(open_source(path))


@given(st.integers(0, 5000), st.binary(min_size=1, max_size=8))
@settings(max_examples=40, deadline=None)
def test_a_damaged_parquet_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, place: int, change: bytes) -> None:
    path = tmp_path_factory.mktemp("damaged") / "table.parquet"
    pyarrow.parquet.write_table(pa.table({"label": ["a", "b"] * 50, "p_mislabeled": np.linspace(0, 1, 100)}), path)
    data = bytearray(path.read_bytes())
    place %= len(data)
    data[place : place + len(change)] = change
    path.write_bytes(bytes(data))
    with contextlib.suppress(DataError):
        assert Database(open_source(path)).total > 0
