"""Progress of the review: decided and flagged examples, pace, expected remaining errors, and the precision of the flags by a
sample.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any

from mohs.audit.decision_log import WRONG, Entry
from mohs.hardness.noise_shape import wilson
from mohs.review.query import OPEN, Clause, quoted
from mohs.review.review import Review

PAUSE = 60.0  # a longer pause, in seconds, means that the reviewer was away
RECENT = 60  # number of decisions over which the pace is measured
INTERVAL = 0.95


def progress(review: Review, by: str) -> dict[str, Any]:
    """The state of the review, as the app shows it to this reviewer."""
    database, roles = review.database, review.source.roles
    flag = None if "verdict" not in roles else f"{quoted(roles['verdict'])} = 'mislabeled'"
    flagged = Clause() if flag is None else Clause((flag,))
    done = flagged.also(f"NOT {OPEN}", table="decided")
    left = Clause().also(OPEN, table="decided")
    expected = None
    if "chance" in roles:
        p = quoted(roles["chance"])
        expected = database.query(f"SELECT sum({p}) FILTER (isfinite({p})) {left.sql}")[0][0]
    counts: dict[str, int] = dict(database.query("SELECT decision, count(*) FROM decided GROUP BY 1"))
    return {
        "flagged": database.count(flagged),
        "flagged_done": database.count(done),
        "by_verdict": flag is not None,
        "total": database.total,
        "decided": sum(count for name, count in counts.items() if name != "skip"),
        "counts": counts,
        "expected_left": expected,
        "pace": pace(review.entries_of(by)),
        "reviewers": review.reviewers(),
        "disputed": database.query("SELECT count(*) FROM decided WHERE disputed")[0][0],
        "sample": sample_precision(review),
        "seq": review.log.state.last,
    }


def pace(entries: Sequence[Entry]) -> float | None:
    """Decisions per minute over the last ones, without pauses; None if there are too few."""
    single = [entry for entry in entries if len(entry.items) == 1][-RECENT:]
    times = [datetime.fromisoformat(entry.at).timestamp() for entry in single]
    steps = [after - before for before, after in pairwise(times) if 0 <= after - before < PAUSE]
    return 60 * len(steps) / sum(steps) if len(steps) >= 3 and sum(steps) > 0 else None


def sample_precision(review: Review) -> dict[str, Any]:
    """Precision of the flags from the random draw, up to its first undecided example."""
    rows = review.database.query("SELECT s.row, d.decision FROM drawn s LEFT JOIN decided d ON d.row = s.row ORDER BY s.place")
    decisions = until_gap(decision for _, decision in rows)
    return {"drawn": len(rows), **estimate(decisions)}


def until_gap(decisions: Iterable[str | None]) -> list[str]:
    """The decisions up to the first example without one: those made elsewhere, the most certain first, would bias the share."""
    found = []
    for decision in decisions:
        if decision is None:
            break
        found.append(decision)
    return found


def estimate(decisions: Sequence[str]) -> dict[str, Any]:
    """Share of the decided examples whose flag was right, with Wilson's interval; skipped ones are ignored."""
    known = [decision for decision in decisions if decision != "skip"]
    right = sum(decision in WRONG for decision in known)
    low, high = wilson(right / len(known), len(known), INTERVAL) if known else (0.0, 1.0)
    return {
        "decided": len(known),
        "skipped": len(decisions) - len(known),
        "right": right,
        "precision": right / len(known) if known else None,
        "low": low,
        "high": high,
    }
