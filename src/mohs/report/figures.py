"""All figures of a report, in the order of the page."""

from __future__ import annotations

from mohs.audit.result import AuditResult
from mohs.report.figure import Figure
from mohs.report.label_figures import class_shares, grades, margins, wrong_pairs
from mohs.report.training_figures import course_figures, emphasis_figure, held_out_figures, history_accuracy, history_loss


def figures(findings: AuditResult) -> list[Figure]:
    """Every figure that the findings have numbers for."""
    labels = (wrong_pairs(findings), class_shares(findings), grades(findings), margins(findings))
    training = (emphasis_figure(findings), *course_figures(findings), history_loss(findings), history_accuracy(findings))
    made = (*labels, *training, *held_out_figures(findings))
    return [figure for figure in made if figure is not None and figure.rows]
