from __future__ import annotations

import pytest
import torch

from mohs._core.errors import DataError
from mohs.data.examples import Data, Examples, LeftOut, joined
from mohs.data.row_inputs import Texts
from mohs.data.validate import check_examples


def examples(n: int = 4, **more: object) -> Examples:
    given = {"inputs": torch.rand(n, 3), "labels": torch.arange(n) % 2, "classes": ["a", "b"], **more}
    return Examples(**given)  # type: ignore[arg-type]


def test_parts_put_together_keep_their_order_keys_and_notes() -> None:
    first, second = (
        examples(keys=list("wxyz"), notes=["n"]),
        examples(2, keys=["u", "v"], notes=["n", "m"], left_out=[LeftOut("p", "r")]),
    )
    both = joined([first, second], name="both")
    assert (len(both), both.keys, both.notes, len(both.left_out), both.name) == (6, [*"wxyzuv"], ["n", "m"], 1, "both")
    assert torch.equal(both.take(torch.tensor([4, 5])).inputs, second.inputs)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="differ in classes or shape"):
        joined([first, examples(classes=["a", "c"])])


def test_data_sum_up_their_splits() -> None:
    data = Data(
        examples(notes=["x"], left_out=[LeftOut("p", "r")]), test=examples(2, notes=["x", "y"], left_out=[LeftOut("q", "r")])
    )
    assert list(data.splits) == ["train", "test"]
    assert data.notes == ["x", "y"]
    assert [one.path for one in data.left_out] == ["p", "q"]


def test_a_line_says_what_they_are_without_the_values() -> None:
    assert repr(examples(name="flowers")) == "Examples(flowers: 4 rows of 3 features of 2 classes)"
    assert repr(examples(inputs=torch.zeros(4, 1))) == "Examples(data: 4 rows of 1 feature of 2 classes)"
    assert repr(examples(inputs=torch.zeros(4, 3, 8, 6).byte())) == "Examples(data: 4 images (3 × 8 × 6) of 2 classes)"
    assert repr(examples(inputs=Texts(["a", "b", "c", "d"]))) == "Examples(data: 4 texts of 2 classes)"
    assert repr(examples(classes=[0.5, 1.5])) == "Examples(data: 4 rows of 3 features with numbers as labels)"
    assert repr(Data(examples(2), None, examples(2))).count("2 rows of 3 features") == 2


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"inputs": torch.rand(1, 3), "labels": torch.zeros(1).long()}, r"data: 1 example\(s\): at least 2 are needed"),
        (
            {"inputs": torch.rand(0, 3), "labels": torch.zeros(0).long(), "left_out": [LeftOut("f", "bad")]},
            "skipped, the first: f: bad",
        ),
        ({"classes": ["a"], "labels": torch.zeros(4).long()}, "data: a single class, 'a': a classifier needs at least 2"),
        ({"classes": []}, "data: no classes"),
        ({"classes": ["a", "b", "c"]}, "data: no example of 'c': add some, or remove the class"),
        ({"labels": torch.tensor([0, 1, 2, 1])}, r"data: the label of example 2 is 2, outside 0\.\.1"),
        ({"labels": torch.tensor([0, 1, -1, 1])}, r"the label of example 2 is -1"),
        ({"labels": torch.rand(4)}, r"labels must be int64, one per example, got torch\.float32"),
        ({"inputs": torch.rand(4, 0)}, r"inputs of shape \(0,\) are empty"),
    ],
)
def test_data_that_no_classifier_can_be_trained_on(more: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        check_examples(examples(**more))


def test_sound_examples_pass() -> None:
    check_examples(examples())
