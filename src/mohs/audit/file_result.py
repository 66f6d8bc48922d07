"""The audit of files as a result that can be reported: the most suspicious rows, and counts over all rows.

Memory holds a part of the table and SHOWN rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from mohs.audit.audit_files import AuditedFiles, most_suspicious
from mohs.audit.result import AuditResult
from mohs.audit.totals import COLUMNS, Totals, margin_edges
from mohs.hardness.table import classes_of

SHOWN = 300  # rows that the report lists
ELSEWHERE = ("data", "fingerprint", "classes")  # facts that the report shows elsewhere
SAMPLED = 200_000  # margins from which the edges of their histogram are computed


def file_result(done: AuditedFiles) -> AuditResult:
    """The result of `audit_files` with the SHOWN rows of the highest p_mislabeled as its table."""
    parts = sorted(done.table.glob("*.parquet"))
    shown = most_suspicious(parts, SHOWN)
    facts = {name: value for name, value in done.facts.items() if name not in ELSEWHERE and value is not None}
    schema = pyarrow.parquet.read_schema(parts[0])
    tables = (pyarrow.parquet.read_table(file, columns=[one for one in COLUMNS if one in schema.names]) for file in parts)
    return AuditResult(
        table=shown,
        counted=Totals.of(tables, margin_edges(pa.concat_tables(_sampled(parts)))),
        name=str(done.facts["data"]),
        data_hash=str(done.facts["fingerprint"]),
        classes=classes_of(shown) or done.estimate.classes,
        estimate=done.estimate,
        facts={**facts, "approximate": "; ".join(facts["approximate"]), "run": str(done.folder)},
        folder=done.folder,
    )


def _sampled(parts: Sequence[Path]) -> Iterator[pa.Table]:
    """Margins and verdicts of rows from all files."""
    share = max(10, SAMPLED // len(parts))
    for file in parts:
        table = pyarrow.parquet.read_table(file, columns=["margin", "verdict"])
        yield table.take(np.linspace(0, len(table) - 1, min(share, len(table))).astype(np.int64))
