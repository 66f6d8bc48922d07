"""`mohs.audit` judges every example, then writes the report. The command `mohs audit` runs it, with or without `--stream`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from mohs.audit.audit_files import AuditedFiles, audit_files
from mohs.audit.file_result import file_result
from mohs.audit.pipeline import run_audit
from mohs.audit.result import AuditResult
from mohs.data.open_data import OPTIONS
from mohs.hardness.shards import Source
from mohs.report.page import write_report


def audit(
    data: Any = None,
    *,
    out: str | Path | None = None,
    runs: str | Path = "runs",
    open_as: Mapping[str, Any] | None = None,
    corrected: str | Path | None = None,
    **options: Any,
) -> AuditResult:
    """Find the easy, hard, ambiguous and mislabeled examples of a data set.

    Args:
        data: A path or name as `open_data` takes them, arrays, or a torch Dataset. Default: scikit-learn's digits with a
            tenth of the labels changed or, with `previous`, the data of that audit, with its options where none are given.
        out: Output folder. Default: a folder under `runs` named after the data and the options.
        runs: Parent of the default output folder.
        open_as: Options of `open_data` as a mapping, for those that are not given as keyword arguments.
        corrected: File of corrected labels that `mohs apply` wrote for an earlier audit of these data; they are audited
            instead of the original ones, and excluded examples are left out.
        **options: Fields of `AuditOptions`: embed, finetune, precision, model, loss, recipe, epochs, batch, folds, issues,
            against, previous, checked, seed, device, run, tell, watch, executor; and options of `open_data`: label, text,
            group, separator, target, image_size, split, root, without, votes, memory_limit.

    Returns:
        The table, the noise estimate and everything the report shows; `result.report` is the HTML file.

    Calling `audit` again with the same arguments resumes in the folder.
    """
    how = dict(open_as or {})
    for name in (one for one in OPTIONS if one in options):
        if name in how:
            raise ValueError(f"{name} is given twice, as an argument and in open_as: leave one out")
        how |= {name: value} if (value := options.pop(name)) is not None else {}
    result = run_audit(data, out=out, runs=runs, open_as=how, corrected=corrected, **options)
    return replace(result, report=write_report(result, result.folder / "report.html"))


def audit_stream(source: Source, out: str | Path | None = None, **options: Any) -> AuditedFiles:
    """Judge the labels of files that need not fit in memory, and report on them; arguments as for `audit_files`."""
    done = audit_files(source, out, **options)
    write_report(file_result(done), done.report)
    return done
