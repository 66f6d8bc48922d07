"""`find_issues`: which issues which inputs allow, the table, and the checks that need labels, texts or columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import mohs
from mohs.issues.catalog import ISSUES, chosen_issues

RNG = np.random.default_rng(0)
SIZE = 600


def classes(size: int = SIZE, number: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Features of well separated classes in random order, and labels."""
    labels = RNG.integers(number, size=size)
    return (8 * np.eye(number, 12)[labels] + RNG.normal(size=(size, 12))).astype(np.float32), labels


def sure(labels: np.ndarray, number: int) -> np.ndarray:
    probs = np.full((len(labels), number), 0.02)
    probs[np.arange(len(labels)), labels] = 1 - 0.02 * (number - 1)
    return probs


def test_clean_data_have_no_issue() -> None:
    x, labels = classes()
    found = mohs.find_issues(x, labels, probs=sure(labels, 3))
    assert {name for name, share in found.shares.items() if share > 2 / SIZE} == set()
    assert set(found.found) == {
        "conflicting_duplicate", "exact_duplicate", "near_duplicate", "outlier", "class_imbalance", "order", "weak_group",
        "class_overlap",
    }  # fmt: skip


def test_the_table_has_score_flag_and_group_and_comes_back() -> None:
    x, labels = classes()
    x[1] = x[0]
    found = mohs.find_issues(x, labels, names="near_duplicate,class_imbalance")
    table = found.table
    assert table.column_names == [
        "near_duplicate", "is_near_duplicate", "near_duplicate_group", "class_imbalance", "is_class_imbalance",
    ]  # fmt: skip
    again = mohs.Issues.of_table(table)
    assert again.shares == found.shares
    assert again.table.equals(table)
    assert found.names()[:3] == ["near_duplicate", "near_duplicate", None]
    assert "near_duplicate 0.33%" in repr(found)


def test_names_and_inputs_are_validated() -> None:
    x, labels = classes()
    with pytest.raises(ValueError, match="unknown issue 'outlyer'; known: auto, none, conflicting_duplicate"):
        mohs.find_issues(x, names="outlyer")
    with pytest.raises(ValueError, match="issue 'leak' needs splits"):
        mohs.find_issues(x, names=["leak"])
    with pytest.raises(ValueError, match="features has 600 rows, but there are 599"):
        mohs.find_issues(x, labels[:-1])
    with pytest.raises(ValueError, match="something to look at"):
        mohs.find_issues()
    assert chosen_issues("none") == []
    assert chosen_issues("outlier, leak") == ["leak", "outlier"]
    assert mohs.find_issues(x, names="none").table.num_rows == SIZE


def test_every_issue_is_documented() -> None:
    for name, about in ISSUES.items():
        assert about.title, name
        assert about.meaning.endswith("."), name
        assert about.advice.endswith("."), name


def test_labels_may_be_names() -> None:
    x, labels = classes()
    names = np.array(["cat", "dog", "owl"])[labels]
    found = mohs.find_issues(x, names, probs=sure(labels, 3), classes=["cat", "dog", "owl"])
    assert not found.found["weak_group"].flag.any()


def test_rare_classes_are_flagged() -> None:
    labels = np.r_[np.zeros(500, int), np.ones(500, int), np.full(4, 2)]
    found = mohs.find_issues(labels=labels).found["class_imbalance"]
    assert np.flatnonzero(found.flag).tolist() == list(range(1000, 1004))
    assert found.details == [{"class": "2", "examples": 4, "share": 0.00398}]


@pytest.mark.parametrize("how", ["shuffled", "sorted", "sorted, a tenth wrong", "blocks of sources", "labels in runs"])
def test_dependence_on_order(how: str) -> None:
    x, labels = classes(900)
    if how.startswith("sorted"):
        order = np.argsort(labels, kind="stable")
        x, labels = x[order], labels[order]
        if "wrong" in how:
            labels[::10] = (labels[::10] + 1) % 3
    elif how == "blocks of sources":
        x[:, 5] += 6 * np.repeat(np.arange(3), 300)
    elif how == "labels in runs":
        labels = np.repeat(RNG.integers(3, size=300), 3)
    found = mohs.find_issues(x if how != "labels in runs" else None, labels).found["order"]
    assert found.share == (how in ("blocks of sources", "labels in runs"))
    assert bool(found.details) == bool(found.share)


def test_a_class_and_a_cluster_that_do_badly() -> None:
    x, labels = classes(number=3)
    probs = sure(labels, 3)
    bad = (labels == 2) & (RNG.random(SIZE) < 0.4)
    probs[bad] = probs[bad][:, [2, 1, 0]]
    found = mohs.find_issues(x, labels, probs=probs).found["weak_group"]
    assert found.flag[labels == 2].all()
    assert not found.flag[labels == 0].any()
    assert found.details[0]["group"] in ("class 2", "cluster 0, mostly 2", "cluster 1, mostly 2", "cluster 2, mostly 2")


def test_two_names_of_one_class_and_one_name_of_two() -> None:
    x, labels = classes(1500, number=4)
    given = labels.copy()
    given[(labels == 1) & (RNG.random(1500) < 0.5)] = 4  # class 4 is class 1
    given[labels == 3] = 2  # class 2 is two classes
    probs = np.full((1500, 5), 0.02)
    probs[np.arange(1500), np.where(given == 4, 1, given)] = 0.5
    probs[given % 3 == 1, 1] = probs[given % 3 == 1, 4] = 0.46
    probs += 0.01 * RNG.random(probs.shape)
    found = mohs.find_issues(x, given, probs=probs / probs.sum(1, keepdims=True), classes=list("abcde")).found["class_overlap"]
    assert [(one["classes"], one["verdict"]) for one in found.details] == [
        ("b and e", "nearly the same"), ("c", "two separate parts"),
    ]  # fmt: skip
    assert set(given[found.flag].tolist()) == {1, 2, 4}


def test_a_column_of_large_numbers_divides_no_class() -> None:
    """Unit vectors of such data point either way along this column."""
    labels = np.arange(600) % 2
    draw = np.random.default_rng(0)
    x = np.c_[draw.normal(size=600) + 3 * labels, draw.normal(size=600), 100 * draw.random(600)]
    found = mohs.find_issues(x, labels, names="class_overlap", probs=0.1 + 0.8 * np.eye(2)[labels])
    assert not found.found["class_overlap"].details


def test_a_class_of_copies_has_one_part() -> None:
    labels = np.arange(200) % 2
    found = mohs.find_issues(np.eye(2, 6)[labels], labels, names="class_overlap", probs=0.1 + 0.8 * np.eye(2)[labels])
    assert not found.found["class_overlap"].details  # and k-means does not warn of its clusters


def test_empty_and_truncated_texts() -> None:
    texts = ["word " * int(n) for n in RNG.integers(3, 200, size=300)]
    assert not any(one.flag.any() for name, one in mohs.find_issues(texts=texts).found.items() if name.endswith("_text"))
    cut = [text[:400] for text in texts]
    cut[5] = " ?! "
    found = mohs.find_issues(texts=cut).found
    assert np.flatnonzero(found["empty_text"].flag).tolist() == [5]
    assert (found["truncated_text"].flag == np.array([len(text.rstrip()) >= 399 for text in cut])).mean() > 0.99
    assert found["truncated_text"].flag.any()


def test_missing_values_and_constant_columns() -> None:
    columns = {f"c{i}": RNG.normal(size=200) for i in range(6)}
    for values in list(columns.values())[:5]:
        values[7] = np.nan
    table = pa.table({**columns, "one": ["same"] * 200, "none": pa.nulls(200), "few": [1.0] * 20 + [None] * 180})
    found = mohs.find_issues(table=table).found
    assert np.flatnonzero(found["missing_values"].flag).tolist() == [7]
    assert [one["column"] for one in found["missing_values"].details] == ["none", "few"]
    assert [one["column"] for one in found["constant_column"].details] == ["one", "none"]
    assert found["constant_column"].number == 2
    assert found["constant_column"].share == pytest.approx(2 / 9)
