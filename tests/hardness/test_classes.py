"""Labels of every kind, into rows of the head and back."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mohs.hardness.classes import decode, encode


def test_integers_in_range_are_class_indices_even_if_classes_are_missing() -> None:
    for labels in ([0, 2, 2], np.array([0, 2, 2], np.uint8), torch.tensor([0, 2, 2]), torch.tensor([0, 2, 2], dtype=torch.int32)):
        index, classes = encode(labels, num_classes=4)
        assert index.dtype == np.int64
        assert index.tolist() == [0, 2, 2]
        assert classes == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (["dog", "cat", "dog"], ["cat", "dog"]),
        ([7, 3, 7], [3, 7]),
        ([-1, 1, -1], [-1, 1]),
        ([True, False, True], [False, True]),
        (np.array(["b", "a", "b"], object), ["a", "b"]),
    ],
)
def test_other_labels_are_sorted(labels: list, classes: list) -> None:
    index, names = encode(labels, num_classes=2)
    assert names == classes
    assert decode(index, names).tolist() == list(labels)


def test_given_classes_set_the_order() -> None:
    index, classes = encode(["cat", "dog"], num_classes=3, classes=["dog", "emu", "cat"])
    assert index.tolist() == [2, 0]
    assert decode(index, classes).tolist() == ["cat", "dog"]
    assert encode([5, 3], num_classes=2, classes=[5, 3])[0].tolist() == [0, 1]
    assert encode([1, 0], num_classes=2, classes=range(2))[0].tolist() == [1, 0]


def test_integers_are_class_indices_if_names_are_strings() -> None:
    index, classes = encode(torch.tensor([2, 0]), num_classes=3, classes=["dog", "emu", "cat"])
    assert decode(index, classes).tolist() == ["cat", "dog"]
    with pytest.raises(ValueError, match=r"labels\[1\] is 3, not one of the head's 3 classes \('dog', 'emu', 'cat'\)"):
        encode([0, 3], num_classes=3, classes=["dog", "emu", "cat"])


@given(st.lists(st.sampled_from(["ä", "b", "", "c c"]), min_size=1, max_size=20))
@settings(deadline=None, derandomize=True)
def test_round_trip(labels: list[str]) -> None:
    index, classes = encode(labels, num_classes=5, classes=["c c", "b", "ä", "", "none"])
    assert decode(index, classes).tolist() == labels
    assert decode(torch.from_numpy(index), classes).tolist() == labels


@pytest.mark.parametrize(
    ("labels", "given", "message"),
    [
        ([0, 1, 5], {}, "labels hold 3 different classes (0, 1, 5) but the head has 4; labels[2] is 5, outside 0..3"),
        ([0, 1, -100], {}, "labels[2] is -100, outside 0..3"),
        (["a", "b"], {}, "labels hold 2 different classes ('a', 'b') but the head has 4: pass classes"),
        (list("abcdefgh"), {}, "('a', 'b', 'c', 'd', 'e', ...)"),
        ([0.0, 1.0], {}, "labels must be integers or names, got float64"),
        ([[0], [1]], {}, "labels must have shape (N,), one per row, got shape (2, 1)"),
        (["a", None], {}, "labels[1] is empty; 1 label(s) are"),
        (["a", "z"], {"classes": list("abcd")}, "labels[1] is 'z', not one of the head's 4 classes"),
        (["a", "z"], {"classes": list("abcd"), "first_row": 100}, "labels[101] is 'z'"),
        (["a"], {"classes": list("abc")}, "classes has 3 names but the head has 4 classes"),
        (["a"], {"classes": list("aabc")}, "classes holds a name twice"),
    ],
)
def test_errors_name_the_row_and_what_to_do(labels: list, given: dict, message: str) -> None:
    labels = np.array(labels, object) if None in labels else labels
    with pytest.raises(ValueError, match=re.escape(message)):
        encode(labels, num_classes=4, **given)


def test_no_labels() -> None:
    assert encode(np.array([], np.int64), num_classes=3)[0].shape == (0,)
