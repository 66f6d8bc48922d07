"""How the report names, colors and explains each verdict.

Counts, filters, colors, the data map and the gallery all read this table, so a verdict that is added to
`mohs.hardness.table.VERDICTS` appears on the page without further change. The colors are Okabe and Ito's, which people with any
kind of color vision can distinguish.
"""

from __future__ import annotations

from dataclasses import dataclass

from mohs.hardness.table import VERDICTS

NOT_JUDGED = "not judged"  # rows without a verdict


@dataclass(frozen=True)
class VerdictLabel:
    """Color on the page, meaning in one line, and the title of the verdict's tab in the gallery."""

    color: str
    meaning: str
    title: str


LABELS: dict[str, VerdictLabel] = {  # in the order in which the page lists them
    "mislabeled": VerdictLabel("#D55E00", "the given label is probably wrong", "Probably mislabeled"),
    "ambiguous": VerdictLabel("#E69F00", "the model is undecided between two or more classes", "Most ambiguous"),
    "hard": VerdictLabel("#0072B2", "the label looks right, but the model learned it late or barely", "Hardest"),
    "easy": VerdictLabel("#56B4E9", "the model learned it and predicts its label with confidence", "Easy"),
    "cannot tell": VerdictLabel("#CC79A7", "the model is too weak here to judge the label", "Cannot tell"),
    NOT_JUDGED: VerdictLabel("#8A949E", "the only example of its class, or without finite scores", "Not judged"),
}
OTHER = VerdictLabel("#7F7F7F", "", "")  # a verdict that is not in this table


def label_of(verdict: str) -> VerdictLabel:
    """The verdict's entry; a gray one without text if there is none."""
    return LABELS.get(verdict, OTHER)


def shown_order(verdicts: tuple[str, ...] = VERDICTS) -> list[str]:
    """The verdicts in the order of the page: what needs attention first."""
    return [*(name for name in LABELS if name in verdicts), *(name for name in verdicts if name not in LABELS)]


def css_name(verdict: str) -> str:
    """The verdict as part of a class name or a custom property: "cannot tell" -> "cannot-tell"."""
    return verdict.replace(" ", "-")
