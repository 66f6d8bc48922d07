"""Audit again with the decisions applied, in a subprocess that the page can follow, and compare the results.

RUN/re-audit-1/labels.csv     the labels with the decisions applied, as `mohs apply` writes them
RUN/re-audit-1/               the new audit; `mohs review RUN/re-audit-1` opens it
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from mohs._core.errors import RunError
from mohs._core.files import written_whole
from mohs.audit.file_names import TABLE, WORDS
from mohs.review.export import all_labels
from mohs.review.review import Review

LINES = 200  # lines of the audit's output that are kept


@dataclass
class ReAudit:
    """One re-audit at a time; `state` is what the page shows."""

    review: Review
    status: str = "idle"
    folder: Path | None = None
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=LINES))
    changed: dict[str, Any] = field(default_factory=dict)
    _process: subprocess.Popen[str] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> dict[str, Any]:
        """Write the corrected labels and start the audit of them."""
        source = self.review.source
        if source.call is None or source.folder is None:
            raise RunError("this audit cannot be repeated: it was made from Python objects; apply the decisions and audit anew")
        with self._lock:
            if self.status != "running":
                self.folder = next_folder(source.folder)
                self.folder.mkdir()
                write_corrections(self.review, self.folder / "labels.csv")
                words = command(self.folder)
                self.lines.clear()
                self.changed, self.status = {}, "running"
                self._process = subprocess.Popen(
                    words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, errors="replace"
                )
                threading.Thread(target=self._follow, args=(self._process,), daemon=True).start()
        return self.state()

    def stop(self) -> dict[str, Any]:
        """Stop it; what it finished is kept in its folder."""
        if self._process is not None and self._process.poll() is None:
            self.status = "stopped"
            self._process.terminate()
        return self.state()

    def state(self) -> dict[str, Any]:
        return {
            "status": self.status,
            "folder": None if self.folder is None else str(self.folder),
            "lines": list(self.lines)[-12:],
            "changed": self.changed,
        }

    def _follow(self, process: subprocess.Popen[str]) -> None:
        with process:
            for line in process.stdout or ():
                self.lines.append(line.rstrip())
        failed = process.returncode != 0
        if self.status == "stopped":
            return
        try:
            if not failed and self.folder is not None:
                self.changed = what_changed(self.review, self.folder)
        except (OSError, ValueError, KeyError, pa.ArrowException) as error:
            self.lines.append(f"the new audit cannot be read: {error}")
            failed = True
        self.status = "failed" if failed else "done"


def next_folder(folder: Path) -> Path:
    """The first of re-audit-1, re-audit-2, ... that does not exist."""
    number = 1
    while (folder / f"re-audit-{number}").exists():
        number += 1
    return folder / f"re-audit-{number}"


def command(folder: Path) -> list[str]:
    """The command that audits the corrected labels with the data and options of the audit before."""
    words = [sys.executable, "-m", "mohs", "audit", "--corrected", str(folder / "labels.csv")]
    return [*words, "--previous", str(folder.parent), "--out", str(folder)]


def write_corrections(review: Review, file: Path) -> None:
    """The labels with the decisions applied, on top of the corrections that this audit was given."""
    made = all_labels(review).select(["id", "label", "previous", "decision"])
    with written_whole(file, sync=False) as part:
        pyarrow.csv.write_csv(made, part)


def what_changed(review: Review, folder: Path) -> dict[str, Any]:
    """How the flags and the noise estimate differ between the two audits; new_set: a selection of the newly flagged."""
    new = pyarrow.parquet.read_table(folder / TABLE, columns=["id", "verdict"])
    ids = [
        str(id_)
        for id_, verdict in zip(*(new.column(c).to_pylist() for c in ("id", "verdict")), strict=True)
        if verdict == "mislabeled"
    ]
    before = {row for (row,) in review.database.query("SELECT e.rowid FROM examples e WHERE e.verdict = 'mislabeled'")}
    after = set(review.database.rows_of(ids).values())
    decided = {review.row_of(id_) for id_, _ in review.decided()}
    fresh = sorted(after - before)
    words = json.loads((folder / WORDS).read_text())
    return {
        "examples": len(new),
        "flagged_before": len(before),
        "flagged_after": len(after),
        "still": len(after & before - decided),
        "cleared": len(before - after),
        "reopened": len(after & decided),
        "new": len(fresh),
        "new_set": review.database.select(pa.array(fresh, pa.int64()).to_numpy()) if fresh else None,
        "noise_before": _noise(json.loads((review.source.folder / WORDS).read_text())) if review.source.folder else None,
        "noise_after": _noise(words),
        "checked": words["facts"].get("checked labels"),
        "review": f"mohs review {folder}",
    }


def _noise(words: Mapping[str, Any]) -> float | None:
    estimate = words.get("estimate")
    return None if not estimate else 0.0 if estimate.get("kind") == "none found" else estimate.get("rate")
