"""Which examples the report shows: in the gallery, and of each issue besides labels.

At most 600: half of them the most likely mislabeled (more if the other groups are small), the rest from the other groups. Each
group holds the examples with that verdict, the most certain first; the hardest are filled up to 60 with the hardest of the easy
ones. The labels to check first are added (`mohs.hardness.checked_labels`). Of each issue the WORST examples are shown, of
copies whole groups.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from mohs.hardness.table import VERDICTS, column
from mohs.issues.issues_table import Issues

MOST = 600
GROUPS: tuple[str, ...] = tuple(name for name in ("mislabeled", "cannot tell", "hard", "ambiguous") if name in VERDICTS)
SHARES = {group: MOST // 2 if group == "mislabeled" else MOST // 2 // (len(GROUPS) - 1) for group in GROUPS}
TO_CHECK = "to check"
WORST = 12  # examples of each issue
AT_LEAST = 60  # examples in the group of the hardest


def gallery_rows(table: pa.Table) -> list[int]:
    """Rows of the table that the gallery shows, group by group, the most certain first."""
    return list(dict.fromkeys(row for rows in group_rows(table).values() for row in rows))


def group_rows(table: pa.Table) -> dict[str, list[int]]:
    """The same rows by group; places that one group does not need go to the others, in order."""
    found = {group: surest(table, group) for group in GROUPS}
    left = {group: max(0, SHARES[group] - len(rows)) for group, rows in found.items()}
    spare = sum(left.values())
    shown = {}
    for group, rows in found.items():
        extra = min(spare, max(0, len(rows) - SHARES[group]))
        spare -= extra
        shown[group] = rows[: SHARES[group] + extra]
    return {**shown, TO_CHECK: rows_to_check(table)}


def rows_to_check(table: pa.Table) -> list[int]:
    """The labels to check first, in order."""
    if "to_check" not in table.column_names:
        return []
    places = table.column("to_check").to_pylist()
    return sorted((row for row, place in enumerate(places) if place is not None), key=lambda row: places[row])


def surest(table: pa.Table, group: str) -> list[int]:
    """Rows with this verdict, the most probable first; ties keep the table's order."""
    chance = column(table, ranked_by(group))
    verdicts = np.asarray(table.column("verdict").to_pylist(), dtype=object)
    fits = verdicts == group
    if group == "hard" and fits.sum() < AT_LEAST:  # if few are hard outright, show the hardest of the easy ones too
        easy = np.flatnonzero(verdicts == "easy")
        fits[easy[np.argsort(-chance[easy], kind="stable")][: AT_LEAST - fits.sum()]] = True
    rows = np.flatnonzero(fits)
    order = np.argsort(-chance[rows], kind="stable")
    surest: list[int] = rows[order].tolist()
    return surest


def ranked_by(group: str) -> str:
    """The column that orders a group: its own probability, or for labels in doubt the probability that they are wrong."""
    return "p_mislabeled" if group in ("cannot tell", TO_CHECK) else f"p_{group}"


def issue_rows(issues: Issues) -> list[int]:
    """Rows that the report shows of all issues."""
    return list(dict.fromkeys(row for name in issues.found for row in worst_rows(issues, name)))


def worst_rows(issues: Issues, name: str) -> list[int]:
    """The flagged rows with the highest scores; members of a group follow one another, the group with the highest score first.

    Groups of exact duplicates are not shown again among the near ones.
    """
    found = issues.found[name]
    rows = np.flatnonzero(found.flag)
    if not len(rows) or len(rows) == len(found.flag):
        return []  # none or all flagged: an issue of the data set, not of single examples
    if found.group is None:
        order = np.argsort(-found.score[rows], kind="stable")
        return list(rows[order][:WORST].tolist())
    best = np.full(found.group.max() + 1, -np.inf)
    if name == "near_duplicate" and "exact_duplicate" in issues.found:
        rows = rows[np.isin(found.group[rows], found.group[rows[~issues.found["exact_duplicate"].flag[rows]]])]
    np.maximum.at(best, found.group[rows], found.score[rows])
    order = np.lexsort((rows, found.group[rows], -best[found.group[rows]]))
    return list(rows[order][:WORST].tolist())
