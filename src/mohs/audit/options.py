"""Options of an audit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mohs._core.executor import Executor, Local
from mohs._core.validation import check_between, check_fields
from mohs._core.watch import Watch, counting
from mohs.hardness.checked_labels import CheckedLabels
from mohs.issues.catalog import chosen_issues

Array = np.ndarray[Any, Any]
Tell = Callable[[str], None]
CHECKED = ("finetune", "precision", "model", "loss", "recipe", "epochs", "batch", "folds", "issues", "seed", "device")
CIRCUMSTANCES = ("tell", "watch", "executor")  # fields that do not change the result
STEPS = ("data", "features", "judge", "scores", "verdict", "issues")


@dataclass(frozen=True, kw_only=True)
class AuditOptions:
    """Options of an audit.

    Attributes:
        embed: Features to judge images and texts by: "auto", an embedder as `mohs.embed` takes it, or "none" to train a
            network from scratch (images only).
        finetune: Whether to fine-tune the pretrained backbone and judge by its training (images, a GPU).
        precision: Expected precision: share of the flagged labels that are wrong.
        model: Network to train, with `embed="none"` or `finetune`.
        loss: Loss of that training; "auto": cross-entropy with early-learning regularization.
        recipe: Robust training of a network from scratch: "robust", "robust-two", "none"; "auto": robust for 20,000 images and
            more on a GPU.
        epochs, batch: Number of epochs and batch size of that training; default: depends on the size of the data.
        folds: Number of cross-validation folds; default: 10 for up to 2,000 examples, else 5.
        issues: Issues besides labels to search for: "auto" (all that fit the data), "none", or names separated by commas.
        against: Second data set, a path or name as `open_data` takes it, to find leaks between the two.
        previous: Folder of an earlier audit of the same examples. Results that do not depend on labels are reused if the inputs
            are the same; table and report show the changes.
        checked: Checked labels, to calibrate p_mislabeled: decisions.csv of the report, decisions.log of
            `mohs review`, the folder of an audit that holds it, or decisions as `read_decisions` returns them.
        seed: Random seed.
        device: "auto", "cpu", "cuda" or "cuda:1".
        run: Folder of a finished run, to judge by its network.
        tell: Called with a line of text at every step.
        watch: Called with progress events.
        executor: Where independent models are fitted: folds of a table, labels of a multi-label audit, halves of `finetune`.
    """

    embed: str | Callable[[Any], Any] = "auto"
    finetune: bool = False
    precision: float = 0.8
    model: str | Mapping[str, Any] = "auto"
    loss: str = "auto"
    recipe: str = "auto"
    epochs: int | None = None
    batch: int | None = None
    folds: int | None = None
    issues: str = "auto"
    against: str | Path | None = None
    previous: str | Path | None = None
    checked: str | Path | Sequence[Mapping[str, str]] | CheckedLabels | None = None
    seed: int = 0
    device: str = "auto"
    run: str | Path | None = None
    tell: Tell = field(default=lambda text: None, compare=False, repr=False)
    watch: Watch = field(default=lambda event: None, compare=False, repr=False)
    executor: Executor = field(default_factory=Local, compare=False, repr=False)

    def __post_init__(self) -> None:
        check_fields(AuditOptions, {name: getattr(self, name) for name in CHECKED})
        for name, least in (("epochs", 1), ("batch", 1), ("folds", 3)):
            if getattr(self, name) is not None:
                check_between(name, getattr(self, name), least)
        check_between("precision", self.precision, 0, 1, ends="()")
        chosen_issues(self.issues)

    def step(self, name: str, text: str) -> None:
        """Report that this step begins."""
        self.tell(f"{STEPS.index(name) + 1}/{len(STEPS)} {name}: {text}")

    def progress(self, what: str) -> Callable[[int, int], None]:
        """A callback (done, of) that passes progress on to `watch`."""
        return counting(self.watch, what)
