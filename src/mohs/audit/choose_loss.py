"""The loss an audit trains with: the one asked for, checked before any work, or the one that the noise found calls for."""

from __future__ import annotations

from typing import Any

from mohs._core.specs import as_spec, create_spec
from mohs.audit.options import AuditOptions
from mohs.data.examples import Examples
from mohs.hardness.noise_rate import NoiseEstimate, suggest_emphasis
from mohs.losses import LOSSES
from mohs.losses.class_weights import class_counts
from mohs.train.build_objective import filled

FIRST_LOSS = "gce:q=0.7"  # wrong labels hardly mislead it
MEMORIZING = ("cross_entropy", "encouraging", "focal", "mse")  # their final margin has learned wrong labels by heart


def loss_spec(loss: str, examples: Examples, *, width: int = 1) -> dict[str, Any]:
    """The loss as a spec with the numbers that the data tell; an error where it cannot be made."""
    told = {
        "class_counts": class_counts(examples.labels, len(examples.classes)).tolist(),
        "num_classes": len(examples.classes),
        "in_features": width,
    }
    spec = filled(as_spec(loss), LOSSES, told)
    create_spec(LOSSES, "loss", spec)
    return spec


def choose_loss(estimate: NoiseEstimate, options: AuditOptions) -> tuple[str, str]:
    """The loss to train with, as a word of the command line, and why; told as a step."""
    suggestion = suggest_emphasis(estimate)
    chosen, reason = options.loss, "You asked for this loss."
    if chosen == "auto":
        chosen, reason = suggestion.spec, f"The first look: {suggestion.reason}"
    options.step("emphasis", f"{chosen}. {reason}")
    return chosen, reason
