"""The report in words: how many examples of which kind, how many labels are probably wrong, and what to do about it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from shlex import quote

from mohs.audit.result import AuditResult
from mohs.hardness.verdict import VERDICTS

MEANINGS = {
    "easy": "learned and settled",
    "hard": "rightly labeled, as far as can be told, but learned late or narrowly",
    "ambiguous": "undecided between classes, or wavering",
    "mislabeled": "the given label is probably wrong",
    "not scored": "never seen in training, or without finite scores",
}
FEW = 20  # suggestions that one looks through in a minute
SCALE_ENDS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class Kind:
    """One verdict: how many examples have it, their share, and what it means."""

    name: str
    examples: int
    share: float
    meaning: str


@dataclass(frozen=True)
class Step:
    """Something to do, with the command that does it where there is one."""

    text: str
    command: str = ""


def kinds(findings: AuditResult) -> list[Kind]:
    """The verdicts in their order, and "not scored" last where there are such rows."""
    counts = Counter("not scored" if name is None else name for name in findings.table.column("verdict").to_pylist())
    total = len(findings.table)
    names = [*VERDICTS, *(["not scored"] if counts["not scored"] else [])]
    return [Kind(name, counts[name], counts[name] / total, MEANINGS[name]) for name in names]


def sentences(findings: AuditResult) -> list[str]:
    """The summary: what was looked at, what was found, how sure that is, what was trained."""
    by_name = {kind.name: kind for kind in kinds(findings)}
    wrong, hard, between = (by_name[name] for name in ("mislabeled", "hard", "ambiguous"))
    said = [
        f"{len(findings.table):,} examples of {len(findings.classes):,} classes were looked at.",
        f"{_count(wrong)} probably {_bear(wrong.examples)} a wrong label, {_count(hard)} {_are(hard.examples)} hard but rightly "
        f"labeled, and {_count(between)} {_lie(between.examples)} between classes; the rest is easy.",
    ]
    if "caution" in findings.facts:
        said.append(f"Caution: {findings.facts['caution']}")
    if "not scored" in by_name:
        said.append(f"{by_name['not scored'].examples:,} could not be scored and are left aside.")
    if findings.left_out:
        said.append(f"{len(findings.left_out):,} could not be read: they are listed under “Left out”.")
    return said


def noise_sentence(findings: AuditResult) -> str:
    """The estimate of wrong labels in words."""
    e = findings.estimate
    if e is None:
        return "The share of wrong labels was not estimated for this run."
    if e.kind == "none found":
        return (
            f"No sign of wrong labels beyond what a model's own mistakes explain: anything from none to "
            f"{e.high:.1%} may be wrong, judged by {e.source}."
        )
    how = {
        "class-dependent": "Certain classes are taken for certain others: the map of pairs shows which.",
        "about uniform": "They are spread over the classes about evenly.",
    }.get(e.kind, f"Kind: {e.kind}.")
    return f"About {e.rate:.1%} of the labels are wrong; between {e.low:.1%} and {e.high:.1%}, judged by {e.source}. {how}"


def training_sentence(findings: AuditResult) -> str:
    """What was trained and why with that emphasis."""
    if not findings.chosen:
        return "No training loss is on record for these findings."
    model = f"{findings.facts['model']} was" if findings.facts.get("model") else "The model was"
    return f"{model} trained with the loss {findings.chosen}. {findings.reason}".strip()


def scale_end(findings: AuditResult) -> float:
    """Where a scale that shows the estimate's interval ends: the next round share."""
    high = 0.0 if findings.estimate is None else findings.estimate.high
    return next((end for end in SCALE_ENDS if high <= end), 1.0)


def next_steps(findings: AuditResult) -> list[Step]:
    """What to do now, in order."""
    wrong = next(kind.examples for kind in kinds(findings) if kind.name == "mislabeled")
    steps = []
    run = quote(str(findings.facts.get("run", "RUN")))
    if wrong:
        many = "all of them" if wrong <= FEW else "the surest stand first"
        said = f"Look through the {wrong:,} suggested corrections below ({many}), and accept, keep, change or exclude."
    else:
        said = "No label looks wrong. Look through the hardest and the most ambiguous examples all the same."
    steps.append(Step(said))
    steps.append(
        Step("Download your decisions, and write the corrected labels:", f"mohs apply {run} decisions.csv --to labels.csv")
    )
    steps.append(Step("Train again on the corrected labels, and compare on held-out examples that people have checked."))
    if findings.left_out:
        steps.append(Step(f"Mend or remove the {len(findings.left_out):,} examples that could not be read."))
    if findings.estimate is not None and findings.estimate.imbalance >= 10:
        steps.append(Step("Classes differ much in size: look at rare ones with care, as rare examples look like wrong ones."))
    return steps


def _count(kind: Kind) -> str:
    return "none" if not kind.examples else f"{kind.examples:,} ({kind.share:.1%})"


def _bear(number: int) -> str:
    return "bears" if number == 1 else "bear"


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def _lie(number: int) -> str:
    return "lies" if number == 1 else "lie"
