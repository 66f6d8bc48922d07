"""The report's section on changes since an earlier audit: which label errors are new, still there or solved, and how many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mohs._core.plain_text import shorten
from mohs.audit.changes import AuditDiff
from mohs.audit.result import AuditResult
from mohs.issues.catalog import ISSUES

SHOWN = 30  # maximum number of listed examples
MEANINGS = {
    "new": "mislabeled now, not before",
    "still": "mislabeled before and now",
    "solved": "mislabeled before, not now; corrected or removed",
    "withdrawn": "mislabeled before, not now, with the same label",
    "changed": "another verdict, mislabeled neither before nor now",
    "unchanged": "the same verdict, and not mislabeled",
    "added": "not in the earlier audit",
    "removed": "not in this audit",
}
LISTED = ("new", "still")


@dataclass(frozen=True)
class Changes:
    """The section: each change with its number and meaning, moves between verdicts, issues, and examples to look at."""

    previous: str
    words: str
    counts: Sequence[tuple[str, int, str]]
    moves: Sequence[tuple[str, str, int]]
    issues: Sequence[dict[str, Any]]
    examples: Sequence[dict[str, Any]]
    more: int


def changes_since(result: AuditResult) -> Changes | None:
    """What changed since the earlier audit; None if none was named."""
    diff = result.diff
    if diff is None:
        return None
    counts = diff.counts
    rows = [row for row in diff.table.to_pylist() if row["change"] in LISTED]
    rows.sort(key=lambda row: (LISTED.index(row["change"]), -(row["p_mislabeled"] or 0)))
    return Changes(
        diff.previous,
        change_words(diff),
        [(name, counts[name], MEANINGS[name]) for name in MEANINGS if counts[name] or name in ("new", "still", "solved")],
        [(old, new, count) for (old, new), count in diff.moves().most_common()],
        [{**one, "issue": ISSUES[one["issue"]].title} for one in diff.issues if one["new"] or one["solved"]],
        [
            {
                "change": row["change"],
                "id": shorten(row["id"], 80),
                "label_before": "" if row["label_before"] is None else shorten(row["label_before"]),
                "label": shorten(row["label"]),
                "verdict_before": row["verdict_before"] or "",
                "p": row["p_mislabeled"],
            }
            for row in rows[:SHOWN]
        ],
        max(0, len(rows) - SHOWN),
    )


def change_sentence(result: AuditResult) -> str | None:
    """The changes in one sentence; None without an earlier audit."""
    return None if result.diff is None else f"Since the earlier audit, {change_words(result.diff)}."


def change_words(diff: AuditDiff) -> str:
    """A phrase with the numbers of new, solved and other changes."""
    counts = diff.counts
    before = counts["still"] + counts["solved"] + counts["withdrawn"]
    withdrawn = f"{counts['withdrawn']:,} no longer flagged, " if counts["withdrawn"] else ""
    return (
        f"{counts['solved']:,} of {before:,} label errors are solved, {withdrawn}{counts['still']:,} are still there, and "
        f"{counts['new']:,} are new; {counts['changed']:,} other verdicts changed"
    )
