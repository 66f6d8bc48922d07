"""`mohs apply`: the decisions made in a report, written as corrected labels; or taken back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer


def apply(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run directory of the audit whose report was decided on.")],
    decisions: Annotated[
        Path | None, typer.Argument(metavar="[DECISIONS]", help="The decisions.csv that the report gave; not with --undo.")
    ] = None,
    to: Annotated[
        Path | None, typer.Option(help="Write the labels here, as .csv or .parquet; by default RUN/labels.csv.")
    ] = None,
    undo: Annotated[
        bool, typer.Option("--undo", help="Put back what --to was before, or the labels as they were given.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the decisions and say what they would do; write nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print no summary.")] = False,
) -> None:
    """Write the labels with the report's decisions: id, path, label (empty where excluded), previous, decision."""
    from mohs.apply import apply_decisions, read_decisions, undo_labels, write_labels
    from mohs.hardness.table import check_table_path
    from mohs.report.findings import load_findings

    if (decisions is None) != undo:
        raise ValueError("give the decisions.csv to apply, or --undo to take an earlier one back (one of the two)")
    if to is not None:
        check_table_path(to)
    findings = load_findings(run)
    to = run / "labels.csv" if to is None else to
    if decisions is None:
        done = undo_labels(findings.table, to)
        _print({"out": str(to), "undone": True}, done, as_json, quiet)
        return
    labels, applied = apply_decisions(findings.table, read_decisions(decisions), findings.data_hash, classes=findings.classes)
    if not dry_run:
        write_labels(labels, to)
    summary = {"out": None if dry_run else str(to), "examples": applied.examples, **applied.decided, "changed": applied.changed}
    told = ", ".join(f"{count:,} {name}" for name, count in applied.decided.items())
    where = "nothing was written (--dry-run)" if dry_run else f"labels: {to}"
    _print(summary, f"{applied.changed:,} of {applied.examples:,} labels changed ({told})\n{where}", as_json, quiet)


def _print(summary: Mapping[str, object], words: str, as_json: bool, quiet: bool) -> None:
    if as_json:
        typer.echo(json.dumps(summary, ensure_ascii=False))
    elif not quiet:
        typer.echo(words)
