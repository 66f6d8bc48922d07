"""Which examples the report's gallery shows.

At most 600: the most likely mislabeled (half of them, more where the other groups are small), then the hardest and the most
ambiguous. Each group holds the examples with that verdict, most probable first; the hardest are filled up to 60 with the
hardest of the easy ones.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from mohs.hardness.table import column

GROUPS = ("mislabeled", "hard", "ambiguous")
SHARES = {"mislabeled": 300, "hard": 150, "ambiguous": 150}
AT_LEAST = 60  # of the hardest


def gallery_rows(table: pa.Table) -> list[int]:
    """The rows of the table that the gallery shows, group by group, the surest first."""
    return [row for group in GROUPS for row in group_rows(table)[group]]


def group_rows(table: pa.Table) -> dict[str, list[int]]:
    """The same by group; what a group leaves over goes to the ones before it."""
    found = {group: surest(table, group) for group in GROUPS}
    left = {group: max(0, SHARES[group] - len(rows)) for group, rows in found.items()}
    spare = sum(left.values())
    shown = {}
    for group, rows in found.items():
        extra = min(spare, max(0, len(rows) - SHARES[group]))
        spare -= extra
        shown[group] = rows[: SHARES[group] + extra]
    return shown


def surest(table: pa.Table, group: str) -> list[int]:
    """Rows with this verdict, the likeliest first; ties in the table's order."""
    chance = column(table, f"p_{group}")
    verdicts = np.asarray(table.column("verdict").to_pylist(), dtype=object)
    fits = verdicts == group
    if group == "hard" and fits.sum() < AT_LEAST:  # where nothing is hard outright, the hardest of the easy deserve a look
        easy = np.flatnonzero(verdicts == "easy")
        fits[easy[np.argsort(-chance[easy], kind="stable")][: AT_LEAST - fits.sum()]] = True
    rows = np.flatnonzero(fits)
    order = np.argsort(-chance[rows], kind="stable")
    surest: list[int] = rows[order].tolist()
    return surest
