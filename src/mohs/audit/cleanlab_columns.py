"""The columns of cleanlab, added to the table.

is_label_issue     the verdict is "mislabeled"
label_score        1 − p_mislabeled, from 0 (certainly wrong) to 1
given_label, predicted_label
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

NAMES = ("is_label_issue", "label_score", "given_label", "predicted_label")


def cleanlab_columns(table: pa.Table) -> pa.Table:
    """Append the four columns; a row without a verdict is not an issue and has no score."""
    missing = [name for name in ("label", "predicted", "verdict", "p_mislabeled") if name not in table.column_names]
    if missing:
        raise ValueError(f"the table has no column {missing[0]!r}: pass it through mohs.verdict first")
    issue = pc.fill_null(pc.equal(table.column("verdict"), "mislabeled"), False)
    made = (issue, pc.subtract(1.0, table.column("p_mislabeled")), table.column("label"), table.column("predicted"))
    for name, values in zip(NAMES, made, strict=True):
        table = table.append_column(name, values)
    return table
