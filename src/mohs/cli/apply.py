"""`mohs apply`: write the labels corrected by the decisions made in a report, retrain on them, or undo."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mohs.cli import shared_options as o
from mohs.cli.progress import progress

if TYPE_CHECKING:
    import pyarrow as pa

    from mohs.audit.result import AuditResult
    from mohs.audit.retrain import Retrained
    from mohs.data.examples import Data

EPILOG = """\b
Examples:
  mohs apply runs/photos decisions.csv --dry-run
  mohs apply runs/photos runs/photos/decisions.log --to labels.csv
  mohs apply runs/photos decisions.csv --to labels.csv --retrain
  mohs apply runs/photos --to labels.csv --undo"""
USAGE = "give either the decisions.log or decisions.csv to apply, or --undo"


RunWord = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of the audit that the decisions belong to.")]
Decisions = Annotated[
    Path | None,
    typer.Argument(
        metavar="DECISIONS",
        help="The decisions.log of mohs review or its folder, or the decisions.csv of a report; not with --undo.",
    ),
]
To = Annotated[Path | None, typer.Option(metavar="FILE", help="Label file to write (.csv or .parquet); default: RUN/labels.csv.")]
Undo = Annotated[bool, typer.Option("--undo", help="Restore the previous version of the label file, or the original labels.")]
Retrain = Annotated[bool, typer.Option("--retrain", help="Train on the corrected labels, and compare on held-out examples.")]
DataWord = Annotated[
    str | None, typer.Option(metavar="DATA", help="New location of the audited data, for --retrain, if they were moved.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check the decisions and print their effect; write nothing.")]


def apply(
    run: RunWord,
    decisions: Decisions = None,
    to: To = None,
    undo: Undo = False,
    retrain: Retrain = False,
    data: DataWord = None,
    label: o.Label = None,
    image_size: o.ImageSize = None,
    device: o.Device = "auto",
    dry_run: DryRun = False,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Write the corrected labels: one row per example with id, path, label (empty if excluded), previous and decision."""
    from mohs.audit.decisions import read_labels, undo_labels
    from mohs.audit.pipeline import corrected_before
    from mohs.audit.result import load_audit
    from mohs.hardness.table import check_table_path

    if retrain and (undo or dry_run):
        raise ValueError(f"--retrain cannot be combined with {'--undo' if undo else '--dry-run'}")
    if (decisions is None) != undo and not (retrain and decisions is None):
        raise ValueError(USAGE)
    if to is not None:
        check_table_path(to)
    findings, to = load_audit(run), run / "labels.csv" if to is None else to
    earlier = corrected_before(run)
    summary: dict[str, Any] = {"out": str(to)}
    words = ""
    if undo:
        summary, words = {**summary, "undone": True}, undo_labels(findings.table, to, earlier=earlier)
    elif decisions is None:
        labels = read_labels(findings.table, to, earlier=earlier)
    else:
        labels, summary, words = _applied(findings, decisions, None if dry_run else to, earlier)
    if retrain:
        found = _audited(run, findings, data, {"label": label, "image_size": image_size})
        done = _retrained(run, labels, found, device=device, quiet=quiet or as_json)
        summary |= {"retrained": _plain(done)}
        words = "\n".join(filter(None, (words, _told(done))))
    _print(summary, words, as_json, quiet)


def _applied(
    findings: AuditResult, decisions: Path, to: Path | None, earlier: pa.Table | None
) -> tuple[pa.Table, dict[str, Any], str]:
    """The labels with these decisions, written unless `to` is None, with a summary as a dictionary and in words."""
    from mohs.audit.decisions import apply_decisions, read_decisions, write_labels

    made = read_decisions(decisions)
    labels, applied = apply_decisions(findings.table, made, findings.data_hash, classes=findings.classes, name=str(decisions))
    kept = None if to is None else write_labels(labels, to, earlier=earlier)
    summary = {
        "out": None if to is None else str(to),
        "examples": applied.examples,
        **applied.decided,
        "changed": applied.changed,
    }
    told = ", ".join(f"{count:,} {name}" for name, count in applied.decided.items())
    where = "nothing was written (--dry-run)" if to is None else f"labels: {to}"
    where += f"\nthe file that was there is kept: {kept} (--undo restores it)" if kept is not None else ""
    return labels, summary, f"{applied.changed:,} of {applied.examples:,} labels changed ({told})\n{where}"


def _audited(run: Path, findings: AuditResult, data: str | None, how: Mapping[str, Any]) -> Data:
    """The data that were audited, with the options of their audit: from the path given, else from where they were."""
    from mohs._core.errors import DataError
    from mohs.audit.pipeline import audit_call, audited_data, check_still_there
    from mohs.audit.retrain import checked_data

    call, options = audit_call(run), {name: value for name, value in how.items() if value is not None}
    if call is None and data is None:
        raise DataError(f"{run}: the audit was given data in memory: give them as a file or folder with --data")
    call = {"data": None, "open_as": {}, "options": {}, **(call or {})}
    call |= {"open_as": {**call["open_as"], **options}} | ({} if data is None else {"data": data})
    if data is None:
        check_still_there(call, "give their new location with --data")
    return checked_data(audited_data(call), findings.data_hash)


def _retrained(run: Path, labels: pa.Table, data: Data, *, device: str, quiet: bool) -> Retrained:
    from mohs.audit.retrain import retrain

    with progress(quiet=quiet) as (tell, watch):
        tell("training again on the corrected labels")
        return retrain(run, labels, data, device=device, watch=watch)


def _plain(done: Retrained) -> dict[str, Any]:
    """The comparison before and after the correction, for JSON."""
    found = done.compared
    return {
        "changed": done.changed,
        "excluded": done.excluded,
        "before": {"run": str(done.before), "accuracy": found.accuracy_b, "only_right": found.only_b},
        "after": {"run": str(done.after), "accuracy": found.accuracy_a, "only_right": found.only_a},
        **{name: getattr(found, name) for name in ("difference", "low", "high", "p", "n", "on")},
    }


def _told(done: Retrained) -> str:
    found = done.compared
    return "\n".join(
        (
            f"trained again: {done.changed:,} labels changed, {done.excluded:,} examples excluded; "
            f"accuracy on the {found.n:,} {found.on} examples:",
            f"    {100 * found.accuracy_b:6.2f} %  before  {done.before}",
            f"    {100 * found.accuracy_a:6.2f} %  after   {done.after}",
            f"difference {100 * found.difference:+.2f} points [{100 * found.low:.2f}, {100 * found.high:.2f}] "
            f"(95 %, bootstrap over examples), McNemar's exact p = {found.p:.2g}",
            "this compares two networks; another seed may give another result",
        )
    )


def _print(summary: Mapping[str, object], words: str, as_json: bool, quiet: bool) -> None:
    if as_json:
        typer.echo(json.dumps(summary, ensure_ascii=False))
    elif not quiet:
        typer.echo(words)
