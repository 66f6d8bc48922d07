"""cleanlab's columns, from the table's own."""

from __future__ import annotations

import pytest

from mohs.audit.cleanlab_columns import NAMES, cleanlab_columns
from mohs.hardness.table import make_table


def test_the_four_columns() -> None:
    columns = {"label": ["a", "b", "a"], "predicted": ["b", "b", "a"], "verdict": ["mislabeled", "easy", None]}
    made = cleanlab_columns(make_table({"id": [1, 2, 3], **columns, "p_mislabeled": [0.75, 0.25, None]}))
    assert made.select(NAMES).to_pydict() == {
        "is_label_issue": [True, False, False],
        "label_score": [0.25, 0.75, None],
        "given_label": ["a", "b", "a"],
        "predicted_label": ["b", "b", "a"],
    }
    assert made.column("id").to_pylist() == [1, 2, 3]


def test_a_table_without_verdict_is_refused() -> None:
    with pytest.raises(ValueError, match=r"the table has no column 'verdict': pass it through mohs\.verdict first"):
        cleanlab_columns(make_table({"id": [1], "label": [0], "predicted": [0], "p_mislabeled": [0.5]}))
