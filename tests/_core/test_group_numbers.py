"""Names of groups as numbers: of every kind of column, with missing names apart."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

from mohs._core.errors import DataError
from mohs._core.group_numbers import group_numbers

PATIENTS = ["p2", "p2", "p1", None, "p1", "", "p3", "p3"]
NUMBERS = [0, 0, 1, 2, 1, 3, 4, 4]  # in order of appearance; each missing one is a group by itself


def test_names_are_numbered_by_appearance_and_missing_ones_are_apart() -> None:
    assert group_numbers(PATIENTS).tolist() == NUMBERS
    assert group_numbers(pd.Series(PATIENTS, dtype="string")).tolist() == NUMBERS  # pandas.NA
    assert group_numbers([1.0, float("nan"), 1, float("nan"), 2]).tolist() == [0, 1, 0, 2, 3]
    assert group_numbers(["a", " a ", "A"]).tolist() == [0, 0, 1]  # blanks around a name do not matter
    assert group_numbers([torch.tensor(3), np.int64(3), 4]).tolist() == [0, 0, 1]
    assert group_numbers(pa.chunked_array([["x"], ["y", "x"]])).tolist() == [0, 1, 0]
    with pytest.raises(DataError, match="the group of example 0 is a list: groups are names or numbers, one per example"):
        group_numbers([["p1"], ["p2"]])
    with pytest.raises(ValueError, match=r"group must be the name of a column or one value per example, got 3\.5"):
        group_numbers(3.5)
