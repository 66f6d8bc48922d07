"""The report's text: how many examples got each verdict, how many labels are probably wrong, and what to do next."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from shlex import quote
from typing import Any

import numpy as np

from mohs.audit.file_names import MARK
from mohs.audit.gallery_rows import rows_to_check
from mohs.audit.judge_predictions import FACTS as OF_PREDICTIONS
from mohs.audit.pipeline import audit_call
from mohs.audit.result import AuditResult
from mohs.data.validate import spellings
from mohs.hardness.table import VERDICTS, column
from mohs.report.changes_block import change_sentence
from mohs.report.issue_blocks import issue_sentence
from mohs.report.verdict_labels import NOT_JUDGED, label_of

FEW = 20  # suggestions that take a minute to review
DOUBTED = 20  # number of most doubtful labels to look at if none is flagged
SPELLINGS = 3  # number of classes with several spellings that a step names
IMBALANCED = 10  # ratio of the largest class to the smallest above which the report warns
CHECK_FIRST = (
    "Check a few labels to calibrate the others: decide on those under “Check first”, download the decisions, and audit "
    "the same data again with them:"
)
SCALE_ENDS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0)
NOISE_KINDS = {
    "class-dependent": "Certain pairs of classes are confused; the table of pairs shows which.",
    "about uniform": "The errors are spread about evenly over the classes.",
}


@dataclass(frozen=True)
class Kind:
    """One verdict: the number and share of its examples, and its meaning."""

    name: str
    examples: int
    share: float
    meaning: str


@dataclass(frozen=True)
class Step:
    """One thing to do, with its command if there is one."""

    text: str
    command: str = ""


def kinds(result: AuditResult) -> list[Kind]:
    """One entry per verdict, in the order of VERDICTS; "not judged" comes last, if any row has no verdict."""
    counts, total = result.totals.by_verdict(), result.totals.rows
    counts[NOT_JUDGED] = counts.pop(None, 0)
    names = [*VERDICTS, *([NOT_JUDGED] if counts[NOT_JUDGED] else [])]
    return [Kind(name, counts[name], counts[name] / total, label_of(name).meaning) for name in names]


def sentences(result: AuditResult) -> list[str]:
    """The summary: the data, the findings, and cautions."""
    by_name = {kind.name: kind for kind in kinds(result)}
    wrong, hard, between = (by_name[name] for name in ("mislabeled", "hard", "ambiguous"))
    unsure = by_name.get("cannot tell")
    doubtful = unsure is not None and unsure.examples > 0
    classes = "" if has_numbers(result) else f" of {len(result.classes):,} classes"
    lines = [
        f"This audit covers {result.totals.rows:,} examples{classes}.",
        f"{_count(wrong)} probably {_plural(wrong, 'has', 'have')} a wrong label." if wrong.examples else unflagged(result),
        f"{_count(hard)} {_plural(hard, 'is', 'are')} hard but correctly labeled, and {_count(between).lower()} "
        f"{_plural(between, 'is', 'are')} ambiguous{'' if doubtful else '; the rest are easy'}.",
    ]
    if unsure is not None and doubtful:
        lines.append(f"The model is too weak here to tell whether the labels of {_count(unsure)} are right or wrong.")
    if "checked labels" in result.facts:
        lines.append(f"{result.facts['checked labels']}.")
    lines += [one for one in (issue_sentence(result), change_sentence(result)) if one is not None]
    if "caution" in result.facts:
        lines.append(f"Caution: {result.facts['caution']}")
    if NOT_JUDGED in by_name:
        lines.append(f"{by_name[NOT_JUDGED].examples:,} not judged: {why_not_judged(result)}.")
    if result.left_out:
        lines.append(f"{len(result.left_out):,} left out, unreadable or without a label; they are listed under “Left out”.")
    return lines


def counts_line(result: AuditResult) -> str:
    """The number of examples and of each verdict, in a line; they add up."""
    counts = [f"{kind.examples:,} {kind.name}" for kind in kinds(result)]
    reason = f" ({why_not_judged(result)})" if None in result.totals.by_verdict() else ""
    return f"{result.totals.rows:,} example{'' if result.totals.rows == 1 else 's'}: {', '.join(counts)}{reason}"


def why_not_judged(result: AuditResult) -> str:
    """Why rows have no verdict: they are their class's only example or group, so that nothing says whether the label is right, or
    they have no finite scores.
    """
    of_label, missing = Counter[Any](), Counter[Any]()
    for (label, verdict), number in result.totals.verdicts.items():
        of_label[label] += number
        missing[label] += number if verdict is None else 0
    classes = set() if has_numbers(result) else set(map(str, result.classes))  # numbers and sets of labels may well be unique
    lone = sum(number for label, number in missing.items() if number == of_label[label] == 1 and str(label) in classes)
    whole = 0  # if a group is a class, models fitted without its fold do not know the class
    if "groups" in result.facts:
        whole = sum(number for label, number in missing.items() if number == of_label[label] > 1 and str(label) in classes)
    rest = missing.total() - lone - whole
    only = "the only example of its class" if lone == 1 else "the only examples of their classes"
    reasons = [(lone, only), (whole, "all examples of their class are in one group or fold"), (rest, "no finite scores")]
    given = [(number, reason) for number, reason in reasons if number]
    return given[0][1] if len(given) == 1 else ", ".join(f"{number:,}: {reason}" for number, reason in given)


def unflagged(result: AuditResult) -> str:
    """A sentence for the case that no label is flagged: how many of the most doubtful ones are probably wrong."""
    if "p_mislabeled" not in result.table.column_names:
        return "No label looks wrong."
    chances = np.nan_to_num(column(result.table, "p_mislabeled").astype(float))
    doubted = min(DOUBTED, len(chances))
    wrong = float(np.sort(chances)[::-1][:doubted].sum())
    if wrong < 1:
        unsure = int((column(result.table, "verdict") == "cannot tell").sum())
        return (
            f"No label looks wrong, but the judge cannot tell for {unsure:,} of {len(chances):,}."
            if unsure
            else "No label looks wrong."
        )
    return f"No label is certain enough to be flagged, but about {wrong:.0f} of the {doubted} most doubtful ones are wrong."


def has_numbers(result: AuditResult) -> bool:
    """Whether labels are numbers, the targets of a regression."""
    return "residual" in result.table.column_names


def any_flagged(result: AuditResult) -> bool:
    """Whether any label is called mislabeled."""
    return bool((column(result.table, "verdict") == "mislabeled").any())


def noise_figure(result: AuditResult) -> str:
    """The estimated share of wrong labels, for a tile."""
    if result.estimate is None or result.estimate.kind != "none found":
        return "" if result.estimate is None else f"{result.estimate.rate:.1%}"
    return "few found" if any_flagged(result) else "none found"


def noise_sentence(result: AuditResult) -> str:
    """The estimated share of wrong labels, as a sentence."""
    estimate = result.estimate
    if estimate is None:
        return "The share of wrong labels was not estimated for this run."
    if estimate.kind == "none found":
        beyond = "the few that are flagged" if any_flagged(result) else "the model's own mistakes"
        return (
            f"No sign of wrong labels beyond {beyond}. The true share may be anything from 0 to {estimate.high:.1%} "
            f"(estimated from {estimate.source})."
        )
    how = NOISE_KINDS.get(estimate.kind, f"Kind of errors: {estimate.kind}.")
    span = f"between {estimate.low:.1%} and {estimate.high:.1%}, estimated from {estimate.source}"
    return f"About {estimate.rate:.1%} of the labels are wrong ({span}). {how}"


def training_sentence(result: AuditResult) -> str:
    """How the labels were judged: by models in folds on some features, or by a network trained with a loss, and why that loss."""
    facts = result.facts
    if not result.chosen and facts.get("features"):
        unseen = str(facts.get("out of sample", "yes")).startswith("yes")
        trust = (
            "No model was trained on the labels that it judges."
            if unseen
            else "Valid only if that model was not trained on these labels."
        )
        return f"Judged by {facts['model']} on {facts['features']}. {trust}"
    if not result.chosen:
        return "This audit has no record of a training loss."
    model = f"{facts['model']} was" if facts.get("model") else "The model was"
    return f"{model} trained with the loss {result.chosen}. {result.reason}".strip()


def scale_end(result: AuditResult) -> float:
    """Right end of the axis that shows the estimate's interval: the next round share."""
    high = 0.0 if result.estimate is None else result.estimate.high
    return next((end for end in SCALE_ENDS if high <= end), 1.0)


def next_steps(result: AuditResult) -> list[Step]:
    """What to do now, in order."""
    counts = {kind.name: kind.examples for kind in kinds(result)}
    wrong, unsure = counts["mislabeled"], counts.get("cannot tell", 0)
    run = quote(str(result.facts.get("run", "RUN")))
    if result.counted is not None:
        return [
            Step("Decide on the examples flagged as mislabeled, the most certain first:", f"mohs review {run}/flagged.parquet"),
            Step("Read the whole table with pandas, Polars, DuckDB or Spark:", f"{run}/hardness/*.parquet"),
        ]
    if wrong:
        shown = "all of them" if wrong <= FEW else "the most certain come first"
        first = f"Review the {wrong:,} suggested corrections below ({shown}): accept, keep, change or exclude."
    else:
        first = f"{unflagged(result)} Look at the most doubtful, the hardest and the most ambiguous examples anyway."
    steps = []
    if twice := spellings(result.classes):
        shown = "; ".join(" and ".join(map(repr, names)) for names in twice[:SPELLINGS]) + ("; ..." if twice[SPELLINGS:] else "")
        steps.append(Step(f"Spell classes alike if they are the same, and audit again. Judged as different classes: {shown}."))
    steps.append(Step(first))
    if rows_to_check(result.table):
        steps.append(Step(CHECK_FIRST, check_command(result)))
    steps += [
        Step("With many examples or several reviewers, use the app instead:", f"mohs review {run}"),
        Step("Download your decisions and write the corrected labels:", f"mohs apply {run} decisions.csv --to labels.csv"),
        Step("Train on the labels before and after, and compare both on held-out examples:", *retrain_command(result)),
    ]
    if result.annotators is not None:
        steps.append(Step("Show the examples listed under “Annotators” to one more person: their votes help most."))
    if unsure:
        is_table = "fields" in result.table.column_names
        stronger = "columns that say more about the label" if is_table else "a stronger model, embeddings from a pretrained one,"
        better = f"{stronger} or more examples per class"
        steps.append(Step(f"To judge the {unsure:,} examples that this audit cannot, use {better}."))
    if result.left_out:
        steps.append(Step(f"Repair, label or remove the {len(result.left_out):,} examples that were left out."))
    if result.estimate is not None and result.estimate.imbalance >= IMBALANCED:
        steps.append(Step("Class sizes differ widely. Check the rare classes with care: their examples can look mislabeled."))
    return steps


def retrain_command(result: AuditResult) -> list[str]:
    """The command that compares training on the original and on the corrected labels; none where it cannot train.

    It cannot for data in memory, numbers, and audits by the network of a run or by predictions of another model.
    """
    call = _call(result)
    if call is None or has_numbers(result) or result.facts.get("model") == OF_PREDICTIONS["model"]:
        return []
    if call.get("options", {}).get("run") is not None:
        return []
    return [f"mohs apply {quote(str(result.facts.get('run', 'RUN')))} --to labels.csv --retrain"]


def _call(result: AuditResult) -> dict[str, Any] | None:
    """How the audit was called, {} if no file says so; None for data in memory, which a command cannot name."""
    return audit_call(result.folder) if (result.folder / MARK).exists() else {}


def check_command(result: AuditResult) -> str:
    """The command, or the call for data in memory, that audits the same data again with checked labels."""
    run = str(result.facts.get("run", "RUN"))
    if _call(result) is None:
        return f'mohs.audit(data, checked="decisions.csv", out={f"{run}-checked"!r})'
    return f"mohs audit --previous {quote(run)} --checked decisions.csv --out {quote(f'{run}-checked')}"


def _count(kind: Kind) -> str:
    return f"{kind.examples:,} ({kind.share:.1%})" if kind.examples else "None"


def _plural(kind: Kind, one: str, many: str) -> str:
    return one if kind.examples == 1 else many
