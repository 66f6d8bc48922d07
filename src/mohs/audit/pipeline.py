"""The audit: from data to a verdict on every example, one table and one report, in a folder that can be resumed.

    check the data → first look and noise estimate → choose the emphasis → train and record → score → verdict → report

Images are judged by a network trained on them (`examine.images`), features by heads in folds (`examine.features`).
Without data it audits scikit-learn's digits with a tenth of the labels made wrong, and says how many of those it found.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from mohs._core.errors import RunError
from mohs._core.files import written_whole
from mohs._core.specs import create_spec, safe_name
from mohs.audit.caution import cautions
from mohs.audit.choose_loss import loss_spec
from mohs.audit.judge_features import judge_features
from mohs.audit.judge_images import judge_images
from mohs.audit.judge_run import judge_run
from mohs.audit.options import AuditOptions
from mohs.audit.result import WORDS, AuditResult, load_audit, save_audit
from mohs.audit.thumbnails import thumbnails_of
from mohs.data.examples import Data
from mohs.data.noise import add_noise
from mohs.data.open_data import open_data
from mohs.data.readers.digits import digits
from mohs.models import MODELS, model_spec
from mohs.train.directory import locked, surroundings

WRONG = {"name": "symmetric", "rate": 0.1}
MARK = "audit.json"  # whose folder it is
JUDGES: dict[str, Callable[[Data, AuditOptions, Path], AuditResult]] = {"images": judge_images, "features": judge_features}


def run_audit(
    data: Any = None,
    *,
    out: str | Path | None = None,
    runs: str | Path = "runs",
    open_as: Mapping[str, Any] | None = None,
    **options: Any,
) -> AuditResult:
    """Everything `mohs.audit` does except the report: see there for the arguments."""
    chosen = AuditOptions(**options)
    found = demonstration(chosen.seed) if data is None else open_data(data, **(open_as or {}))
    check_options(found, chosen)
    chosen.step("data", describe(found))
    name = run_name(found, chosen)
    with workplace(Path(out) if out is not None else Path(runs) / name, name) as folder:
        if not finished(folder, name):
            judge = JUDGES[found.train.kind] if chosen.run is None else judge_run
            save_audit(with_context(judge(found, chosen, folder), found, name, folder), folder)
            tidy(folder)
        result = load_audit(folder)
    if "caution" in result.facts:
        chosen.tell(f"Caution: {result.facts['caution']}")
    return result


def check_options(data: Data, options: AuditOptions) -> None:
    """Raise, before any work, for what was wished and cannot be."""
    if options.loss != "auto":
        loss_spec(options.loss, data.train)
    named = model_spec(options.model)
    if named["name"] == "auto":
        return
    if data.train.kind == "features":
        raise ValueError(f"model={options.model!r} is for images: features are judged by linear heads; leave it out")
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
    for pattern in ("*/checkpoint.safetensors", "scores.parquet", "neighbors.safetensors"):
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


def run_name(data: Data, options: AuditOptions) -> str:
    """A name for the folder: the data's, and a hash of the data and of what was wished for."""
    plain = {
        name: value for name, value in vars(options).items() if name not in ("tell", "watch", "device") and value is not None
    }
    text = json.dumps([plain, data.train.fingerprint()], sort_keys=True, default=str)
    safe = safe_name(Path(str(data.name)).stem) or "data"
    return f"audit-{safe}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def finished(folder: Path, name: str) -> bool:
    """Whether the folder holds the findings of this very audit."""
    try:
        return bool(json.loads((folder / WORDS).read_text())["facts"].get("audit") == name)
    except (OSError, ValueError, KeyError):  # not there, or not whole: it is made anew
        return False


def with_context(result: AuditResult, data: Data, name: str, folder: Path) -> AuditResult:
    """The result with what is known of the data and of where it was made."""
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
        extra |= known_wrong(train.labels.tolist(), train.truth.tolist(), result.table)
    facts = cautions(result.table, {**result.facts, **extra}, result.estimate)
    return replace(result, facts=facts, thumbnails=thumbnails_of(train), folder=folder)


def known_wrong(labels: list[int], truth: list[int], table: pa.Table) -> dict[str, Any]:
    """Where the truth is known: how many labels are wrong, how many were flagged, and how many of these are."""
    wrong = [given != true for given, true in zip(labels, truth, strict=True)]
    flagged = [verdict == "mislabeled" for verdict in table.column("verdict").to_pylist()]
    hits = sum(a and b for a, b in zip(wrong, flagged, strict=True))
    return {"labels made wrong": sum(wrong), "flagged": sum(flagged), "flagged and wrong": hits}
