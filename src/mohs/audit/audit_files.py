"""Audit files that need not fit in memory: features or logits and labels in Parquet shards or npy files.

    labels      one pass over the labels: the classes
    judge       fitted to a sample of the rows (`file_judge`): heads in folds, noise model, ranks
    score       one pass: every row is measured and judged by itself, block by block (`hardness.blocks`)
    verdict     one pass over the results: flags by a histogram of p_mislabeled over all rows, verdicts, reasons

Memory holds the sample, a batch and the columns of a block, whatever the number of rows. Blocks are independent: an executor runs
them in this process or elsewhere, and the same call resumes from those that are done. The folder holds

    audit.json                 the source and the options
    judge.safetensors          the fitted judge
    parts/                     results before the verdict, removed at the end
    hardness/00017.parquet     the table, a part for each block of rows, in the order of the source
    flagged.parquet            the rows most probably mislabeled, at most SHOWN, the most probable first: `mohs review` opens it
    summary.json, .npz         shares of the verdicts, the noise estimate, and what is approximate
    report.html                the report (`file_result`), if the command made it
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from mohs._core.arrays import read_arrays
from mohs._core.checksums import read_json, reading
from mohs._core.errors import DataError
from mohs._core.executor import Executor, Local
from mohs._core.files import written_whole
from mohs._core.folders import claimed, refuse_data_folder
from mohs._core.part_files import PartFile, Tally
from mohs._core.specs import safe_name
from mohs._core.validation import check_between
from mohs.audit.file_judge import BINS, SAMPLE, FileJudge, fit_judge, load_judge, save_judge
from mohs.audit.file_names import FLAGGED, MARK, REPAIR
from mohs.audit.options import Array, Tell
from mohs.hardness.blocks import BlockWork, blocks_of, class_names, run_blocks
from mohs.hardness.classes import decode
from mohs.hardness.judgment import SLACK, least_alone, rate_interval
from mohs.hardness.measure import Columns, table_of
from mohs.hardness.noise_rate import NoiseEstimate, estimate_of_counts
from mohs.hardness.score_files import norm_ranges, norm_within
from mohs.hardness.shards import Source
from mohs.hardness.table import VERDICTS, add_columns, write_table
from mohs.hardness.verdict import reasons, verdict_columns

SUMMARY, JUDGE, PARTS, TABLE = "summary", "judge.safetensors", "parts", "hardness"
REPORT = "report.html"
SHOWN = 20_000
INTERVAL = 0.95
IN_ARRAYS = ("transition", "counts")


@dataclass(frozen=True, eq=False)
class AuditedFiles:
    """The result of `audit_files`.

    Attributes:
        folder: Folder of the audit; its table is in the Parquet files of `folder / "hardness"`.
        rows: Number of rows.
        unjudged: Rows with NaN or infinity, which have no verdict.
        counts: Number of rows with each verdict.
        estimate: Estimated share of wrong labels.
        threshold: Rows with at least this p_mislabeled are called mislabeled.
        facts: How the audit was made: sizes of samples, and seconds of each pass.
    """

    folder: Path
    rows: int
    unjudged: int
    counts: Mapping[str, int]
    estimate: NoiseEstimate
    threshold: float
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def table(self) -> Path:
        """Folder of the table's Parquet files."""
        return self.folder / TABLE

    @property
    def flagged(self) -> Path:
        """File of the rows most probably mislabeled."""
        return self.folder / FLAGGED

    @property
    def report(self) -> Path:
        """The HTML report, which `mohs audit --stream` writes."""
        return self.folder / REPORT

    @property
    def shares(self) -> dict[str, float]:
        """Share of rows with each verdict and of those not judged, and `noise`, the estimated share of wrong labels (0 if none
        was found)."""
        shares = {name.replace(" ", "_"): self.counts[name] / self.rows for name in VERDICTS}
        shares["not_judged"] = self.unjudged / self.rows
        return shares | {"noise": 0.0 if self.estimate.kind == "none found" else self.estimate.rate}


def audit_files(
    source: Source,
    out: str | Path | None = None,
    *,
    runs: str | Path = "runs",
    classes: Sequence[Any] | None = None,
    sample: int = SAMPLE,
    folds: int = 5,
    precision: float = 0.8,
    seed: int = 0,
    executor: Executor | None = None,
    tell: Tell = lambda text: None,
) -> AuditedFiles:
    """Judge the labels of a source that need not fit in memory.

    Args:
        source: From `hardness.shards.open_source`, with features or with out-of-sample logits.
        out: Output folder; default: a folder under `runs` named after the source and the options. The same call again resumes
            there.
        runs: Parent of the default output folder.
        classes: Class names in the order of the logits; default: the source's own, or the labels in order.
        sample: Number of rows that heads, noise model and ranks are fitted to.
        folds: Number of cross-validation folds within the sample.
        precision: Expected share of the rows called mislabeled whose label is wrong.
        seed: Random seed.
        executor: What runs the blocks; default: this process.
        tell: Called with a line of text at every step.

    Returns:
        The shares of the verdicts, the noise estimate, and the folder with the table.
    """
    check_between("precision", precision, 0, 1, ends="()")
    check_between("folds", folds, 3)
    check_between("sample", sample, 100)
    settings = {"classes": classes, "sample": sample, "folds": folds, "precision": precision, "seed": seed}
    text = json.dumps([source.fingerprint(), settings], default=str)
    refuse_data_folder(out, source.name)
    name = f"audit-{safe_name(Path(source.name).stem) or 'data'}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    about = {"audit": name, "data": source.name, **settings}
    with claimed(Path(runs) / name if out is None else out, MARK, about, kind="audit", key="audit") as folder:
        if (folder / f"{SUMMARY}.json").exists():
            return load_audited_files(folder)
        clock = _Clock()
        tell(f"1/4 labels: {source.rows:,} rows of {source.name}")
        names = class_names(source, source.classes if classes is None else classes)
        if len(names) < 2:
            raise DataError(f"{source.name}: all labels are {names[0]!r}: at least 2 classes are needed")
        clock.stop("labels")
        judge = _judge(source, names, folder, tell, sample=sample, folds=folds, seed=seed)
        clock.stop("judge")
        tell(f"3/4 score: {len(blocks_of(source.units)):,} blocks of rows")
        total = _scored(source, names, judge, folder, executor or Local())
        clock.stop("score")
        tell(f"4/4 verdict: flagging at an expected precision of {precision:.0%}")
        threshold = flag_threshold(total["flag_counts"], total["flag_sums"], precision)
        finish = VerdictWork(folder, names, judge, threshold, total.get("low"), total.get("high"))
        counts = np.sum(list((executor or Local()).map(finish, range(len(blocks_of(source.units))))), 0)
        write_flagged(folder, threshold)
        clock.stop("verdict")
        rows = source.rows
        result = AuditedFiles(
            folder,
            rows,
            rows - int(counts.sum()),
            dict(zip(VERDICTS, counts.tolist(), strict=True)),
            estimated(total, threshold, judge, names, seed),
            threshold,
            {
                "data": source.name,
                "fingerprint": source.fingerprint(),
                **judged_by(source, judge, folds),
                "sample": judge.examples,
                **settings,
                "approximate": notes_of(judge, rows),
                **clock.seconds,
            },
        )
        save_audited_files(result)
        shutil.rmtree(folder / PARTS)
        return result


def _judge(source: Source, names: Sequence[Any], folder: Path, tell: Tell, **how: Any) -> FileJudge:
    """Load the judge of this folder; fit it first if it does not exist."""
    if not (folder / JUDGE).exists():
        by = "the logits given, which must be out of sample" if "logits" in source.keys else f"heads in {how['folds']} folds"
        tell(f"2/4 judge: {by}, fitted to {min(how['sample'], source.rows):,} rows")
        save_judge(fit_judge(source, names, **how), folder / JUDGE)
    return load_judge(folder / JUDGE)


def _scored(source: Source, names: Sequence[Any], judge: FileJudge, folder: Path, executor: Executor) -> Tally:
    """Measure and judge all blocks; returns the sums over them."""
    (folder / PARTS).mkdir(exist_ok=True)
    work = BlockWork(source, names, judge, NormTally(len(names)), folder / PARTS)
    total: Tally = {}
    for measured in run_blocks(work, blocks_of(source.units), executor):
        if measured.error is not None:
            raise DataError(f"{measured.error}; the blocks before it are kept: repair the file and run the same command again")
        ranges = [measured.tally.pop(name, None) for name in ("low", "high")]
        if total and ranges[0] is not None and ranges[1] is not None:
            ranges = [np.minimum(total.pop("low"), ranges[0]), np.maximum(total.pop("high"), ranges[1])]
        sums = {name: total[name] + values if name in total else values for name, values in measured.tally.items()}
        total = sums | {name: one for name, one in zip(("low", "high"), ranges, strict=True) if one is not None}
    return total


@dataclass(frozen=True)
class NormTally:
    """The range of norms in each class of a block."""

    classes: int

    def __call__(self, columns: Columns, first: int) -> Tally:
        return norm_ranges(columns["norm"], columns["label"], self.classes) if "norm" in columns else {}


def flag_threshold(counts: Array, sums: Array, precision: float) -> float:
    """The lowest edge of a bin such that rows above it have a mean p_mislabeled of at least `precision`; 1 if there is none.

    counts, sums (BINS,): rows in each bin of p_mislabeled, and the sum of their p_mislabeled. Like `choose_flags`, up to the
    width of a bin: no row below `precision` − SLACK is flagged, and a single row only if it is likely enough.
    """
    n, total = counts[::-1].cumsum(), sums[::-1].cumsum()
    edges = np.arange(BINS)[::-1] / BINS
    fits = (total >= precision * n) & (edges >= precision - SLACK) & (n > 0)
    last = int(np.flatnonzero(fits)[-1]) if fits.any() else -1
    alone = last >= 0 and n[last] == 1 and total[last] < least_alone(precision)
    return 1.0 if last < 0 or alone else float(edges[last])


def write_flagged(folder: Path, threshold: float) -> None:
    """Copy the rows with the highest p_mislabeled, at least the threshold, from the table into flagged.parquet."""
    write_table(most_suspicious(sorted((folder / TABLE).glob("*.parquet")), SHOWN, threshold), folder / FLAGGED)


def most_suspicious(parts: Sequence[Path], most: int, threshold: float = 0.0) -> pa.Table:
    """The rows of these files with the highest p_mislabeled, at least the threshold, the most suspicious first."""
    held, least = pyarrow.parquet.ParquetFile(parts[0]).schema_arrow.empty_table(), threshold
    for file in parts:
        found = pyarrow.parquet.read_table(file, filters=[("p_mislabeled", ">=", least)])
        held = pa.concat_tables([held, found]).sort_by([("p_mislabeled", "descending")])[:most]
        least = threshold if len(held) < most else held.column("p_mislabeled")[-1].as_py()
    return held


@dataclass(frozen=True, eq=False)
class VerdictWork:
    """Writes the part of the table for a block; returns the number of rows with each verdict."""

    folder: Path
    classes: Sequence[Any]
    judge: FileJudge
    threshold: float
    low: Array | None
    high: Array | None

    def __call__(self, number: int) -> Array:
        part = PartFile(self.folder / TABLE, number)
        if not part.table.exists():
            part.write([self.table(PartFile(self.folder / PARTS, number).read())])
        verdicts = pyarrow.parquet.read_table(part.table, columns=["verdict"]).column("verdict")
        return np.array([pc.sum(pc.equal(verdicts, name)).as_py() or 0 for name in VERDICTS])

    def table(self, part: pa.Table) -> pa.Table:
        """The rows of a part with their verdicts."""
        raw = {name: part.column(name) for name in part.column_names}
        wrong, supported, suggested, p_suggested = (
            raw.pop(name).to_numpy() for name in ("p_mislabeled", "supported", "suggested", "p_suggested")
        )
        grades = self.judge.margins.grade(-raw["margin"].to_numpy().astype(np.float64))
        extra: Columns = {"mohs": pa.array(grades, mask=grades == 0)}
        if self.low is not None and self.high is not None:
            extra["norm_in_class"] = norm_within(raw["norm"], raw["label"], self.low, self.high)
        table = table_of({**raw, **extra}, self.classes)
        known = ~np.isnan(wrong)
        flagged = known & (wrong >= self.threshold)
        place = self.judge.places(table)
        columns = verdict_columns(wrong, flagged, known & ~flagged & ~supported, variability=np.zeros(len(wrong)), place=place)
        columns["suggested_label"] = decode(np.where(flagged, suggested, raw["label"].to_numpy()), self.classes)
        columns["p_suggested"] = np.where(flagged, p_suggested, 1 - wrong)
        return add_columns(table, {**columns, "why": reasons(table, "margin")})


def estimated(total: Tally, threshold: float, judge: FileJudge, names: Sequence[Any], seed: int) -> NoiseEstimate:
    """Estimate the share of wrong labels from the sums over all rows; rows at or above the threshold are flagged."""
    n, wrong, apparent, unsure, doubted = total["sums"].tolist()
    z = NormalDist().inv_cdf((1 + INTERVAL) / 2)
    means = {"apparent": apparent / n, "unsure": unsure / n, "doubted": doubted / n}
    found = float(total["flag_sums"][np.arange(BINS) / BINS >= threshold].sum())
    low, high = rate_interval(wrong / n, found / n, **means, kappa=judge.rule.kappa, n=int(n), z=z)
    shares = (wrong / n, low, high, total["counts"], total["sizes"], doubted / n)
    return estimate_of_counts(*shares, names, seed=seed, found=found / n)


def judged_by(source: Source, judge: FileJudge, folds: int) -> dict[str, str]:
    """How the rows were judged, for the report."""
    if judge.head is None:
        return {"model": "the model that made the logits", "features": "the data", "out of sample": "if the logits are"}
    fitted = f"{judge.examples:,} of {source.rows:,} rows" if source.rows > judge.examples else "all rows"
    model = f"heads in {folds} folds (fitted to {fitted})"
    return {"model": model, "features": f"{source.width:,} features", "out of sample": "yes"}


def notes_of(judge: FileJudge, rows: int) -> list[str]:
    """Which parts of the table are approximate for a source with this many rows."""
    notes = [f"p_mislabeled is compared in steps of 1/{BINS} to choose the rows called mislabeled"]
    if rows > judge.examples:
        notes.append(f"heads, noise model, ranks and grades are those of {judge.examples:,} of {rows:,} rows, drawn at random")
    if judge.geometry is not None and rows > len(judge.geometry.references.rows):
        notes.append(f"neighbors are searched among {len(judge.geometry.references.rows):,} rows drawn at random")
    return notes


def save_audited_files(result: AuditedFiles) -> None:
    """Write summary.npz and, last, summary.json."""
    estimate = asdict(result.estimate)
    arrays = {name: np.asarray(estimate.pop(name)) for name in IN_ARRAYS}
    with written_whole(result.folder / f"{SUMMARY}.npz") as part, part.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
    words = {
        "rows": result.rows,
        "unjudged": result.unjudged,
        "counts": dict(result.counts),
        "threshold": result.threshold,
        "estimate": estimate,
        "facts": dict(result.facts),
    }
    with written_whole(result.folder / f"{SUMMARY}.json") as part:
        part.write_text(json.dumps(words, indent=1, default=str) + "\n")


def is_audited_files(folder: Path) -> bool:
    """Whether the folder holds a finished result of `audit_files`."""
    return (folder / f"{SUMMARY}.json").exists() and (folder / TABLE).is_dir()


def load_audited_files(folder: Path) -> AuditedFiles:
    """The result that `audit_files` left in the folder."""
    lost = "the shares and the noise estimate are lost"
    words = read_json(folder / f"{SUMMARY}.json", lost=lost, repair=REPAIR)
    with reading(folder / f"{SUMMARY}.npz", lost=lost, repair=REPAIR):
        arrays: dict[str, Any] = read_arrays(folder / f"{SUMMARY}.npz")
    return AuditedFiles(folder=folder, **{**words, "estimate": NoiseEstimate(**words["estimate"], **arrays)})


class _Clock:
    """Stopwatch: seconds of each stage, by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def stop(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[f"{name} seconds"] = round(now - self._last, 3)
        self._last = now
