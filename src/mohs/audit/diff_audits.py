"""`diff_audits`: two audits of the same examples, compared example by example."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from mohs._core.errors import DataError
from mohs.audit.changes import FLAGGED, AuditDiff
from mohs.audit.result import AuditResult, load_audit
from mohs.issues.issues_table import Issues


def diff_audits(before: AuditResult | str | Path, after: AuditResult | str | Path) -> AuditDiff:
    """Compare two audits of the same examples, such as before and after labels were corrected.

    Args:
        before: The earlier audit, or its folder.
        after: The later audit, or its folder.

    Returns:
        The change of each example, matched by its id, and of each issue besides labels.

    Raises:
        DataError: The audits have no example in common.

    Example:
        >>> mohs.diff_audits("runs/photos", "runs/photos-2").counts
        {'new': 3, 'still': 12, 'solved': 104, 'withdrawn': 2, 'changed': 31, 'unchanged': 9850, 'added': 0, 'removed': 7}
    """
    old, new = (one if isinstance(one, AuditResult) else load_audit(one) for one in (before, after))
    place = {str(id_): row for row, id_ in enumerate(old.table.column("id").to_pylist())}
    ids = [str(id_) for id_ in new.table.column("id").to_pylist()]
    check_common(place, ids, old, new.name)
    known = set(ids)
    gone = [id_ for id_ in place if id_ not in known]
    now = [*range(len(ids)), *[None] * len(gone)]
    then = [place.get(id_) for id_ in (*ids, *gone)]
    columns: dict[str, Any] = {"id": [*ids, *gone]}
    for name in ("label", "verdict", "p_mislabeled"):
        columns[f"{name}_before"], columns[name] = _taken(old, name, then), _taken(new, name, now)
    compared = (columns[name].to_pylist() for name in ("verdict_before", "verdict", "label_before", "label"))
    columns["change"] = [change_of(*one) for one in zip(*compared, then, now, strict=True)]
    columns["issues_new"], columns["issues_solved"], issues = _issues(old.issues, new.issues, then, now)
    order = ["id", "change", "label_before", "label", "verdict_before", "verdict", "p_mislabeled_before", "p_mislabeled"]
    table = pa.table({name: columns[name] for name in (*order, "issues_new", "issues_solved")})
    return AuditDiff(table, issues, str(old.folder))


def check_common(place: Mapping[str, int], ids: Sequence[str], before: AuditResult, name: str) -> None:
    """Raise unless some of these ids are among those of the earlier audit."""
    if not any(id_ in place for id_ in ids):
        shown = f"{next(iter(place))!r} there, {ids[0]!r} in {name}"
        raise DataError(f"{before.folder} audited other examples: no id is in both ({shown}); give an audit of the same examples")


def change_of(
    before: str | None, now: str | None, old_label: str | None, label: str | None, then_row: int | None, row: int | None
) -> str:
    """The change of one example by its verdict, its label and its row in each audit (None: absent)."""
    if now == FLAGGED:
        return "still" if before == FLAGGED else "new"
    if before == FLAGGED:
        return "solved" if row is None or label != old_label else "withdrawn"
    if then_row is None or row is None:
        return "added" if then_row is None else "removed"
    return "unchanged" if before == now else "changed"


def _taken(result: AuditResult, name: str, rows: Sequence[int | None]) -> pa.Array:
    """A column at these rows, null where there is none; labels as text, since classes may differ."""
    values = result.table.column(name).combine_chunks()
    values = values.cast(pa.string()) if name in ("label", "verdict") else values
    return values.take(pa.array(rows, pa.int64()))


def _issues(
    before: Issues | None, after: Issues | None, then: Sequence[int | None], now: Sequence[int | None]
) -> tuple[pa.Array, pa.Array, list[dict[str, Any]]]:
    """Names of the new and of the solved issues of each example, and the numbers of each issue."""
    fresh: list[list[str]] = [[] for _ in now]
    solved: list[list[str]] = [[] for _ in now]
    lines = []
    earlier, later = ({} if one is None else one.found for one in (before, after))
    for name in (one for one in later if one in earlier):
        if earlier[name].flag.all() and later[name].flag.all():
            continue  # an issue of the data set, not of single examples
        old, new = (
            [row is not None and bool(flag[row]) for row in rows]
            for flag, rows in ((earlier[name].flag, then), (later[name].flag, now))
        )
        for i, (had, has) in enumerate(zip(old, new, strict=True)):
            if had != has:
                (fresh if has else solved)[i].append(name)
        started = sum(has and not had for had, has in zip(old, new, strict=True))
        lines.append(
            {"issue": name, "before": sum(old), "now": sum(new), "new": started, "solved": sum(old) + started - sum(new)}
        )
    words = [pa.array([" ".join(one) or None for one in part], pa.string()) for part in (fresh, solved)]
    return words[0], words[1], lines
