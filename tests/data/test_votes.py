"""Votes of several people: their forms in files, and how they match the examples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import mohs
from mohs.data.examples import Examples
from mohs.data.votes import labeled_by_votes, read_votes, vote_shares, with_votes
from mohs.train.run_data import of_classes

CLASSES = ["cat", "dog", "fox"]
GIVEN = np.array([[0, 0, 1], [1, 1, -1], [2, 0, 2], [1, 2, 0]])  # −1: no vote
COUNTS = [[2, 1, 0], [0, 2, 0], [1, 0, 2], [1, 1, 1]]


def examples() -> Examples:
    paths = [f"x/{i}.png" for i in range(4)]
    return Examples(torch.zeros(4, 2), torch.tensor([0, 1, 1, 2]), CLASSES, keys=list("abcd"), paths=paths)


def name(k: int) -> str:
    return "" if k < 0 else CLASSES[k]


def wide(folder: Path) -> str:
    lines = [f"{key},{','.join(map(name, row))}" for key, row in zip("dcba", GIVEN[::-1], strict=True)]
    (folder / "wide.csv").write_text("\n".join(["id,anna,ben,carl", *lines]))
    return str(folder / "wide.csv")


def long(folder: Path) -> str:
    rows = [(i, a) for i in range(4) for a in range(3) if GIVEN[i, a] >= 0]
    lines = [f"{i}.png,{'ABC'[a]},{name(GIVEN[i, a])}" for i, a in reversed(rows)]
    (folder / "long.csv").write_text("\n".join(["example,annotator,label", *lines]))
    return str(folder / "long.csv")


def counts(folder: Path) -> str:
    (folder / "counts.csv").write_text("\n".join(["cat,dog,fox", *(",".join(map(str, row)) for row in COUNTS)]))
    return str(folder / "counts.csv")


def arrays(folder: Path) -> str:
    np.savez(folder / "votes.npz", clean=[0, 1, 1, 2], worse=[0, 0, 0, 0], **{f"random{a}": GIVEN[:, a] for a in range(3)})
    return f"{folder / 'votes.npz'}:random0,random1,random2"


def count_array(folder: Path) -> str:
    np.savez(folder / "counts.npz", counts=COUNTS)
    return str(folder / "counts.npz")


@pytest.mark.parametrize("form", [wide, long, counts, arrays, count_array])
def test_every_form_is_read_alike(form: object, tmp_path: Path) -> None:
    votes = read_votes(form(tmp_path), examples())  # type: ignore[operator]
    assert votes.tally(4).tolist() == COUNTS
    assert votes.classes == CLASSES
    assert len(votes.annotators) == (1 if form in (counts, count_array) else 3)


def test_votes_in_memory_are_those_of_columns() -> None:
    assert with_votes(examples(), [[name(k) or None for k in row] for row in GIVEN]).votes.tally(4).tolist() == COUNTS
    with pytest.raises(mohs.DataError, match="votes are on 5 examples"):
        with_votes(examples(), [["cat"]] * 5)


def test_votes_stay_with_their_examples(tmp_path: Path) -> None:
    given = with_votes(examples(), wide(tmp_path))
    part = given.take(torch.tensor([3, 1]))
    assert part.votes is not None
    assert part.votes.tally(2).tolist() == [COUNTS[3], COUNTS[1]]
    assert given.fingerprint() != examples().fingerprint()


def test_votes_for_some_classes() -> None:
    given = with_votes(examples(), [[name(k) or None for k in row] for row in GIVEN])
    part = of_classes(given, [2, 1])
    assert part.votes is not None
    assert part.votes.tally(3).tolist() == [[row[2], row[1]] for row in COUNTS[1:]]
    assert part.votes.classes == part.classes == ["fox", "dog"]


def test_labels_and_shares_of_votes(tmp_path: Path) -> None:
    given = with_votes(examples(), wide(tmp_path))
    assert labeled_by_votes(given).labels.tolist() == [0, 1, 2, 2]  # the tie of the last goes to its own label
    torch.testing.assert_close(vote_shares(given)[2], torch.tensor([1 / 3, 0, 2 / 3]))
    assert vote_shares(with_votes(examples(), [["cat"]])).tolist()[1:] == [[0, 1, 0], [0, 1, 0], [0, 0, 1]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,anna\nz,cat\n", "line 2: the vote is on example 'z'"),
        ("id,anna\na,cow\n", "'cow', not one of the 3 classes"),
        ("anna,ben\ncat,dog\n", "has 1 rows"),
        ("annotator,label\nanna,cat\n", "which example"),
    ],
)
def test_errors_name_the_file_and_the_remedy(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "votes.csv").write_text(text)
    with pytest.raises(mohs.DataError, match=message) as error:
        read_votes(str(tmp_path / "votes.csv"), examples())
    assert "votes.csv" in str(error.value)


def test_the_order_is_checked_by_clean_labels(tmp_path: Path) -> None:
    np.savez(tmp_path / "votes.npz", clean=[1, 1, 1, 2], random1=[0, 0, 0, 0])
    with pytest.raises(mohs.DataError, match="not in the same order"):
        read_votes(f"{tmp_path / 'votes.npz'}:random1", examples())
