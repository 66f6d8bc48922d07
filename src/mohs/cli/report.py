"""`mohs report`: write the HTML report of a finished audit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from mohs.cli import shared_options as o

EPILOG = """\b
Examples:
  mohs report runs/photos --open
  mohs report runs/photos --out photos.html"""


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished audit.")],
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="HTML file to write; default: RUN/report.html.")] = None,
    open_it: Annotated[bool, typer.Option("--open/--no-open", help="Open the report in a browser.")] = False,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Write the report of a finished audit as one self-contained HTML file."""
    from mohs.audit.audit_files import is_audited_files, load_audited_files
    from mohs.audit.file_result import file_result
    from mohs.audit.result import load_audit
    from mohs.report.page import chart_script, check_report_path, write_report
    from mohs.report.summary import counts_line, kinds

    if out is not None:
        check_report_path(out)
    findings = file_result(load_audited_files(run)) if is_audited_files(run) else load_audit(run)
    out = write_report(findings, run / "report.html" if out is None else out)
    if not chart_script() and not quiet:
        typer.echo("mohs: the report has no charts; they need the report extra: pip install 'mohs[report]'", err=True)
    if as_json:
        counts = {kind.name.replace(" ", "_"): kind.examples for kind in kinds(findings)}
        summary = {"out": str(out), "bytes": out.stat().st_size, "examples": findings.totals.rows, "verdicts": counts}
        typer.echo(json.dumps(summary, ensure_ascii=False))
    elif not quiet:
        typer.echo(counts_line(findings))
        typer.echo(f"report: {out}")
    if open_it:
        typer.launch(str(out))
