"""The result of an audit: everything that its report shows, and the files that store it.

    hardness.parquet   the table, with the verdict's columns
    findings.json      names, estimate, losses, history, facts; findings.npz: their arrays
    thumbnails.parquet a small picture of each example that the gallery shows, by its row of the table
    evidence.parquet   neighbors and probabilities of each example (`evidence`)
    annotators.parquet quality of each annotator, where several people voted
    issues.parquet     score, flag and group of each example for each issue besides its label (`mohs.issues`)
    copies.npz         pairs of examples that may be copies, for another audit of the same inputs (`previous`)
    diff.parquet       what changed since an earlier audit (`changes`)

Nothing is pickled. Each file is written completely or not at all, findings.json last: if it exists, so do the others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from mohs._core.checksums import keep_checksums, listed, read_json, reading, remove_file
from mohs._core.errors import DataError
from mohs._core.files import written_whole
from mohs._core.folders import held_in
from mohs._core.plain_text import finite
from mohs.audit.changes import AuditDiff
from mohs.audit.evidence import write_evidence
from mohs.audit.file_names import (
    ANNOTATORS,
    ARRAYS,
    COPIES,
    DIFF,
    EVIDENCE,
    FLAGGED,
    ISSUES,
    MARK,
    PICTURES,
    REPAIR,
    TABLE,
    WORDS,
)
from mohs.audit.gallery_rows import gallery_rows, issue_rows
from mohs.audit.thumbnails import Thumbnails, store_pictures, stored_pictures
from mohs.audit.totals import Totals, margin_edges
from mohs.data.examples import Examples, LeftOut
from mohs.hardness.noise_rate import NoiseEstimate
from mohs.hardness.table import VERDICTS, read_parquet, read_table, write_table
from mohs.issues.duplicates import Copies, Pairs
from mohs.issues.issues_table import Issues

VERSION = 1
NEEDED = ("id", "label", "verdict", "p_mislabeled", "p_hard", "p_ambiguous")
COURSES = ("norm", "avh", "accuracy")  # quantities that `dynamics` may hold
IN_ESTIMATE = ("transition", "counts")
MOST_COPIES = 200_000  # examples up to which the pairs are kept: about 200 bytes each
Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False, repr=False)
class AuditResult:
    """The result of an audit of one set of examples.

    Attributes:
        table: Hardness table with verdicts, one row per example.
        name: Name of the data set.
        data_hash: Fingerprint of the data.
        classes: Class names.
        estimate: Estimated share of wrong labels, if it was estimated.
        chosen, reason: Loss of the trained network and the reason for it; empty if no network was trained.
        history: One dictionary per training epoch.
        dynamics: Means per epoch (E,) and hardness bin (E, B), the easiest first, of norm, avh and accuracy.
        held_out: Out-of-sample probabilities (M, K) and labels (M,).
        thumbnails: Function from rows of the table to images.
        evidence: Nearest neighbors and most probable classes of each example (`mohs.audit.evidence`).
        annotators: Quality of each annotator, if several people voted (`Consensus.annotators`).
        issues: Issues besides labels, if the audit searched for them.
        diff: Changes since an earlier audit, if one was named (`previous`).
        left_out: Examples that could not be read.
        facts: Everything else that the report shows.
        counted: Counts over all examples, if `table` holds only the most suspicious ones (`mohs.audit.file_result`).
        folder: Folder of the audit.
        report: The HTML report.
    """

    table: pa.Table
    name: str
    data_hash: str
    classes: Sequence[Any]
    estimate: NoiseEstimate | None = None
    chosen: str = ""
    reason: str = ""
    history: Sequence[Mapping[str, Any]] = ()
    dynamics: Mapping[str, Array] | None = None
    held_out: tuple[Array, Array] | None = None
    thumbnails: Thumbnails | None = None
    evidence: pa.Table | None = None
    annotators: pa.Table | None = None
    issues: Issues | None = None
    diff: AuditDiff | None = None
    left_out: Sequence[LeftOut] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    counted: Totals | None = None
    folder: Path = Path()
    report: Path | None = None

    @cached_property
    def totals(self) -> Totals:
        """Counts over all examples."""
        return Totals.of([self.table], margin_edges(self.table)) if self.counted is None else self.counted

    @classmethod
    def of(cls, examples: Examples, **found: Any) -> AuditResult:
        """Create a result with name, fingerprint, classes and unreadable files of these examples."""
        return cls(
            name=str(examples.name),
            data_hash=examples.fingerprint(),
            classes=examples.classes,
            left_out=examples.left_out,
            **found,
        )

    @property
    def shares(self) -> dict[str, float]:
        """Share of examples with each verdict and of those not judged, which sum to 1; `noise` (the estimated share of wrong
        labels, 0 if none was found); shares of issues."""
        counts = self.totals.by_verdict()
        shares = {name.replace(" ", "_"): counts[name] / self.totals.rows for name in VERDICTS}
        shares["not_judged"] = counts[None] / self.totals.rows
        found = self.estimate
        shares |= {} if found is None else {"noise": 0.0 if found.kind == "none found" else found.rate}
        return shares if self.issues is None else shares | self.issues.shares

    def to_pandas(self) -> Any:
        """The table as a pandas DataFrame."""
        return self.table.to_pandas()

    def __repr__(self) -> str:
        counts = self.totals.by_verdict()
        counts["not judged"] = counts.pop(None, 0)
        shown = ", ".join(f"{counts[name]:,} {name}" for name in (*VERDICTS, "not judged") if counts[name])
        report = f"; report {self.report}" if self.report else ""
        return f"AuditResult({self.name}: {self.totals.rows:,} examples, {shown}{report})"

    def _repr_html_(self) -> str:
        shown = "".join(f"<tr><th>{escape(name)}</th><td>{share:.1%}</td></tr>" for name, share in self.shares.items())
        where = f"<p>Report: {escape(str(self.report))}</p>" if self.report else ""
        return f"<p>{escape(self.name)}: {len(self.table):,} examples</p><table>{shown}</table>{where}"

    def __post_init__(self) -> None:
        missing = [name for name in NEEDED if name not in self.table.column_names]
        if missing:
            raise ValueError(f"the table has no column {missing[0]!r}: pass it through mohs.verdict first")
        if not len(self.table):
            raise DataError(f"{self.name}: the table has no rows, there is nothing to report")
        if self.dynamics is not None:
            _check_dynamics(self.dynamics)
        if self.held_out is not None:
            _check_held_out(*self.held_out, len(self.classes))


def save_audit(findings: AuditResult, folder: str | Path) -> Path:
    """Write the result to the folder, which is created if needed, with thumbnails of the examples in the gallery."""

    folder = Path(folder)
    keep_checksums(folder)
    remove_file(folder / WORDS)  # its presence means that the other files are complete
    write_table(findings.table, folder / TABLE)
    if findings.thumbnails is None:
        remove_file(folder / PICTURES)
    else:
        rows = pictured_rows(findings)
        store_pictures(rows, findings.thumbnails(rows), folder / PICTURES)
    if findings.evidence is None:
        remove_file(folder / EVIDENCE)
    else:
        write_evidence(findings.evidence, folder / EVIDENCE)
    for name, part_of in ((ANNOTATORS, findings.annotators), (DIFF, None if findings.diff is None else findings.diff.stored())):
        if part_of is None:
            remove_file(folder / name)
        else:
            with written_whole(folder / name, sync=False) as part:
                pyarrow.parquet.write_table(part_of, part)
    if findings.issues is None:
        remove_file(folder / ISSUES)
    else:
        write_table(findings.issues.table, folder / ISSUES)
    _save_copies(None if findings.issues is None else findings.issues.copies, folder / COPIES)
    with written_whole(folder / ARRAYS, sync=False) as part, part.open("wb") as file:
        np.savez_compressed(file, **_arrays(findings))  # type: ignore[arg-type]
    with written_whole(folder / WORDS, sync=False) as part:
        part.write_text(json.dumps(_words(findings), indent=1, allow_nan=False), encoding="ascii")
    return folder


def pictured_rows(result: AuditResult) -> list[int]:
    """Rows of the table that the report shows: those of the gallery, and those of the other issues."""
    shown = gallery_rows(result.table)
    return shown if result.issues is None else list(dict.fromkeys([*shown, *issue_rows(result.issues)]))


def not_an_audit(folder: Path) -> DataError:
    """The error for a folder without the files of `save_audit`, saying what the folder is and what to give instead."""
    give = "give the folder of a finished audit"
    if not folder.is_dir():
        return DataError(f"{folder} {'is a file' if folder.exists() else 'does not exist'}: {give}")
    if (folder / FLAGGED).is_file():
        return DataError(f"{folder} holds an audit of files (--stream): mohs review takes its {FLAGGED}, mohs report the folder")
    if (folder / MARK).is_file():
        return DataError(f"{folder}: the audit is not finished: run the same mohs audit command again to resume it")
    held = held_in(folder)
    return DataError(f"{folder} is not the folder of an audit{f': {held}' if held else ''}; {give}")


def load_audit(folder: str | Path) -> AuditResult:
    """Read the result that `save_audit` wrote."""

    folder = Path(folder)
    if not (folder / WORDS).exists() and WORDS not in listed(folder):
        raise not_an_audit(folder)
    words = read_json(folder / WORDS, lost="the noise estimate, losses and facts are lost", repair=REPAIR)
    with reading(folder / WORDS, lost="the findings are lost", repair=REPAIR):
        if words["version"] > VERSION:
            raise DataError(
                f"{folder / WORDS} has the layout of version {words['version']}, this mohs reads {VERSION}: upgrade mohs"
            )
        kept = {name: words[name] for name in ("name", "data_hash", "classes", "chosen", "reason", "history", "facts")}
        left_out = [LeftOut(path, reason) for path, reason in words["left_out"]]
        plain = words["estimate"]
        if not isinstance(kept["facts"], dict):
            raise TypeError("its facts are not an object")
    table = read_table(folder / TABLE, lost="the hardness table is lost", repair=REPAIR)
    optional = (PICTURES, EVIDENCE, ANNOTATORS, ISSUES, DIFF)
    pictured, known, voted, checked, compared = ((folder / name).exists() or name in listed(folder) for name in optional)
    with reading(folder / ARRAYS, lost="the noise matrix, dynamics and held-out predictions are lost", repair=REPAIR):
        with np.load(folder / ARRAYS, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        return AuditResult(
            table=table,
            estimate=_estimate(plain, arrays),
            dynamics=_part(arrays, "dynamics"),
            held_out=(arrays["held_out.probs"], arrays["held_out.labels"]) if "held_out.probs" in arrays else None,
            thumbnails=stored_pictures(folder / PICTURES, lost="the thumbnails are lost", repair=REPAIR) if pictured else None,
            evidence=read_parquet(folder / EVIDENCE, lost="the neighbors are lost", repair=REPAIR) if known else None,
            annotators=read_parquet(folder / ANNOTATORS, lost="the annotators are lost", repair=REPAIR) if voted else None,
            issues=_load_issues(folder) if checked else None,
            diff=AuditDiff.of_stored(read_parquet(folder / DIFF, lost="the diff is lost", repair=REPAIR)) if compared else None,
            left_out=left_out,
            folder=folder,
            **kept,
        )


def _save_copies(copies: Copies | None, file: Path) -> None:
    if copies is None or len(copies.exact) > MOST_COPIES:
        remove_file(file)
        return
    pairs = copies.pairs
    with written_whole(file, sync=False) as part, part.open("wb") as out:
        np.savez(
            out,
            first=pairs.first.astype(np.int32),
            second=pairs.second.astype(np.int32),
            log_expected=pairs.log_expected,
            exact=copies.exact,
        )


def _load_issues(folder: Path) -> Issues:
    """The issues, with the pairs of possible copies if the folder holds them."""
    issues, file = Issues.of_table(read_parquet(folder / ISSUES, lost="the issues are lost", repair=REPAIR)), folder / COPIES
    if not file.exists() and COPIES not in listed(folder):
        return issues
    with reading(file, lost="the pairs of copies are lost", repair=REPAIR), np.load(file, allow_pickle=False) as kept:
        pairs = Pairs(kept["first"].astype(np.int64), kept["second"].astype(np.int64), kept["log_expected"])
        return replace(issues, copies=Copies(pairs, kept["exact"]))


def _words(findings: AuditResult) -> dict[str, Any]:
    estimate = findings.estimate
    plain = (
        None if estimate is None else {f.name: getattr(estimate, f.name) for f in fields(estimate) if f.name not in IN_ESTIMATE}
    )
    words = {
        "version": VERSION,
        "name": findings.name,
        "data_hash": findings.data_hash,
        "classes": list(findings.classes),
        "estimate": plain,
        "chosen": findings.chosen,
        "reason": findings.reason,
        "history": [dict(entry) for entry in findings.history],
        "facts": dict(findings.facts),
        "left_out": [[one.path, one.reason] for one in findings.left_out],
    }
    plain_words: dict[str, Any] = finite(words)
    return plain_words


def _arrays(findings: AuditResult) -> dict[str, Array]:
    arrays: dict[str, Array] = {}
    if findings.estimate is not None:
        arrays |= {f"estimate.{name}": np.asarray(getattr(findings.estimate, name)) for name in IN_ESTIMATE}
    if findings.dynamics is not None:
        arrays |= {f"dynamics.{name}": np.asarray(values) for name, values in findings.dynamics.items()}
    if findings.held_out is not None:
        arrays |= {
            f"held_out.{name}": np.asarray(values) for name, values in zip(("probs", "labels"), findings.held_out, strict=True)
        }
    return arrays


def _part(arrays: Mapping[str, Array], prefix: str) -> dict[str, Array] | None:
    """The arrays whose names have this prefix, without it; None if there are none."""
    return {name.removeprefix(f"{prefix}."): array for name, array in arrays.items() if name.startswith(f"{prefix}.")} or None


def _estimate(plain: Mapping[str, Any] | None, arrays: Mapping[str, Array]) -> NoiseEstimate | None:
    if plain is None:
        return None
    matrices: dict[str, Any] = {name: arrays[f"estimate.{name}"] for name in IN_ESTIMATE}
    return NoiseEstimate(**plain, **matrices)


def _check_dynamics(dynamics: Mapping[str, Array]) -> None:
    unknown = [name for name in dynamics if name not in (*COURSES, "epoch")]
    if unknown or "epoch" not in dynamics:
        wrong = f"has {unknown[0]!r}" if unknown else "has no 'epoch'"
        raise ValueError(f"dynamics {wrong}; it holds epoch (E,) and any of {', '.join(COURSES)} (E, bins)")
    epochs = np.shape(dynamics["epoch"])
    for name in COURSES:
        shape = np.shape(dynamics[name]) if name in dynamics else (*epochs, 1)
        if len(shape) != 2 or shape[:1] != epochs:
            raise ValueError(f"dynamics[{name!r}] must have shape (E, bins) for the epochs {epochs}, got {shape}")


def _check_held_out(probs: Any, labels: Any, classes: int) -> None:
    shape = np.shape(probs)
    if len(shape) != 2 or shape[1] != classes or np.shape(labels) != shape[:1]:
        raise ValueError(
            f"held_out must be probs (M, {classes}), one column per class, and labels (M,), got {shape} and {np.shape(labels)}"
        )
