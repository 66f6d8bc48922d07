"""The audit: from data to a verdict on every example, one table and one report, in a folder that can be resumed.

    check the data → first look and noise estimate → choose the emphasis → train and record → score → verdict → report

Images are judged by a network trained on them (`examine.images`), features by heads in folds (`examine.features`).
Without data it audits scikit-learn's digits with a tenth of the labels made wrong, and says how many of those it found.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from mohs.data.examples import Data
from mohs.data.noise import add_noise
from mohs.data.open_data import open_data
from mohs.data.sources.digits import digits
from mohs.errors import RunError
from mohs.examine.caution import cautions
from mohs.examine.emphasis import loss_spec
from mohs.examine.examined import Examined, Wishes
from mohs.examine.features import examine_features
from mohs.examine.images import examine_images
from mohs.examine.trained import examine_trained
from mohs.files import written_whole
from mohs.hardness.verdict import VERDICTS
from mohs.models import MODELS, model_spec
from mohs.naming import create_spec, safe_name
from mohs.report.findings import WORDS, Findings, load_findings, save_findings
from mohs.report.page import write_report
from mohs.report.thumbnails import thumbnails_of
from mohs.train.run_directory import locked, surroundings

WRONG = {"name": "symmetric", "rate": 0.1}
MARK = "audit.json"  # whose folder it is
EXAMINERS: dict[str, Callable[[Data, Wishes, Path], Examined]] = {"images": examine_images, "features": examine_features}


@dataclass(frozen=True, eq=False)
class Audit:
    """What was found: the table, the folder it lies in, the report, and the findings behind both."""

    table: pa.Table = field(repr=False)
    folder: Path
    report: Path
    findings: Findings = field(repr=False)

    @property
    def shares(self) -> dict[str, float]:
        """The share of examples of each verdict, and `noise`, the estimated share of wrong labels (0 where none was found)."""
        counts = Counter(self.table.column("verdict").to_pylist())
        shares = {name: counts[name] / len(self.table) for name in VERDICTS}
        found = self.findings.estimate
        return shares if found is None else shares | {"noise": 0.0 if found.kind == "none found" else found.rate}


def audit(
    data: Any = None,
    *,
    out: str | Path | None = None,
    runs: str | Path = "runs",
    open_as: Mapping[str, Any] | None = None,
    **wishes: Any,
) -> Audit:
    """Audit data: a path or name as `open_data` takes them, arrays, a Dataset, or nothing for the demonstration.

    out: the folder, by default one under `runs` named by data and settings. open_as: how to read the data (label, image_size,
    ...). wishes: model, loss, epochs, batch, folds, seed, device, run (a finished run whose network judges in place of one
    trained here); tell(text) and watch(event) are told how it goes.
    """
    wanted = Wishes(**wishes)
    found = demonstration(wanted.seed) if data is None else open_data(data, **(open_as or {}))
    check_wishes(found, wanted)
    wanted.step("data", describe(found))
    name = run_name(found, wanted)
    with workplace(Path(out) if out is not None else Path(runs) / name, name) as folder:
        if not finished(folder, name):
            examine = EXAMINERS[found.train.kind] if wanted.run is None else examine_trained
            save_findings(gathered_findings(found, examine(found, wanted, folder), name, folder), folder)
            tidy(folder)
        findings = load_findings(folder)
        if "caution" in findings.facts:
            wanted.tell(f"Caution: {findings.facts['caution']}")
        wanted.step("report", str(folder / "report.html"))
        report = write_report(findings, folder / "report.html")
    return Audit(findings.table, folder, report, findings)


def check_wishes(data: Data, wishes: Wishes) -> None:
    """Raise, before any work, for what was wished and cannot be."""
    if wishes.loss != "auto":
        loss_spec(wishes.loss, data.train)
    named = model_spec(wishes.model)
    if named["name"] == "auto":
        return
    if data.train.kind == "features":
        raise ValueError(f"model={wishes.model!r} is for images: features are judged by linear heads; leave it out")
    create_spec(MODELS, "model", named)


@contextmanager
def workplace(folder: Path, name: str) -> Iterator[Path]:
    """The audit's folder, made where it is missing, for this process and this audit alone."""
    with ExitStack() as held:
        try:
            held.enter_context(locked(folder))
            claim(folder, name)
        except OSError as error:
            raise RunError(f"{folder}: cannot be written ({error.strerror or error}): give another folder with out") from error
        yield folder


def claim(folder: Path, name: str) -> None:
    """Write down whose folder it is, or refuse that of another audit: what is kept there is not to be mixed up."""
    file = folder / MARK
    held = json.loads(file.read_text())["audit"] if file.exists() else name
    if held != name:
        raise RunError(
            f"{folder} holds another audit ({held}, this one is {name}; data or settings differ): choose another folder"
        )
    if not file.exists():
        with written_whole(file) as part:
            part.write_text(json.dumps({"audit": name}) + "\n")


def tidy(folder: Path) -> None:
    """Remove what only an interrupted audit needs."""
    for pattern in ("*/checkpoint.safetensors", "scores.parquet", "neighbours.safetensors"):
        for file in folder.glob(pattern):
            file.unlink(missing_ok=True)


def demonstration(seed: int = 0) -> Data:
    """Digits with a tenth of the labels moved to another class; the truth is kept beside them."""
    found = digits()
    return Data(add_noise(found.train, WRONG, seed=seed))


def describe(data: Data) -> str:
    """What was read, in a sentence."""
    train = data.train
    lost = f"; {len(train.left_out):,} could not be read and are left out" if train.left_out else ""
    shape = " × ".join(map(str, train.shape))
    return f"{train.name}: {len(train):,} {train.kind} ({shape}) of {len(train.classes)} classes{lost}"


def run_name(data: Data, wishes: Wishes) -> str:
    """A name for the folder: the data's, and a hash of the data and of what was wished for."""
    plain = {name: value for name, value in vars(wishes).items() if name not in ("tell", "watch", "device") and value is not None}
    text = json.dumps([plain, data.train.fingerprint()], sort_keys=True, default=str)
    safe = safe_name(Path(str(data.name)).stem) or "data"
    return f"audit-{safe}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def finished(folder: Path, name: str) -> bool:
    """Whether the folder holds the findings of this very audit."""
    try:
        return bool(json.loads((folder / WORDS).read_text())["facts"].get("audit") == name)
    except (OSError, ValueError, KeyError):  # not there, or not whole: it is made anew
        return False


def gathered_findings(data: Data, examined: Examined, name: str, folder: Path) -> Findings:
    """The findings of an examination."""
    train = data.train
    around = surroundings()
    extra: dict[str, Any] = {
        "audit": name,
        "run": str(folder),
        "hardware": around["hardware"],
        **{f"{k} version": v for k, v in around["versions"].items()},
    }
    if train.notes:
        extra["notes"] = "; ".join(train.notes)
    if train.truth is not None:
        extra |= known_wrong(train.labels.tolist(), train.truth.tolist(), examined.table)
    return Findings(
        table=examined.table,
        name=str(train.name),
        data_hash=train.fingerprint(),
        classes=train.classes,
        estimate=examined.estimate,
        chosen=examined.chosen,
        reason=examined.reason,
        history=examined.history,
        dynamics=examined.dynamics,
        held_out=examined.held_out,
        thumbnails=thumbnails_of(train),
        left_out=data.train.left_out,
        facts=cautions(examined.table, {**examined.facts, **extra}, examined.estimate),
    )


def known_wrong(labels: list[int], truth: list[int], table: pa.Table) -> dict[str, Any]:
    """Where the truth is known: how many labels are wrong, how many were flagged, and how many of these are."""
    wrong = [given != true for given, true in zip(labels, truth, strict=True)]
    flagged = [verdict == "mislabelled" for verdict in table.column("verdict").to_pylist()]
    hits = sum(a and b for a, b in zip(wrong, flagged, strict=True))
    return {"labels made wrong": sum(wrong), "flagged": sum(flagged), "flagged and wrong": hits}
