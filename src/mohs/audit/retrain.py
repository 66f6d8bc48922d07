"""Train on the labels before and after their correction, and compare both classifiers on the same held-out examples.

An audit that trained a network is repeated with its settings; one that judged by features trains a linear model on them.

    with a test or validation set      both are compared on that set unchanged
    without either                     a fifth of each class is held out, and both are trained on the rest: a network of the
                                       audit has seen every example; held-out examples count with their corrected labels

Examples that were excluded are neither trained on nor held out. The runs are in `retrained/` of the audit's folder, and the
same labels give the same run, which is trained once. The comparison
is between two networks with one seed each, so it includes chance.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor

from mohs._core.device import choose_device
from mohs._core.errors import DataError
from mohs._core.watch import UNWATCHED, Watch, counting
from mohs.audit.pipeline import audit_call
from mohs.data.corrections import with_labels
from mohs.data.examples import Data, Examples
from mohs.data.split import held_out
from mohs.embed.embed_data import cache_part
from mohs.evaluate.mcnemar import RunsCompared, paired_by_example
from mohs.evaluate.outputs import predict
from mohs.train.directory import RunDirectory
from mohs.train.loop import train
from mohs.train.run import Run
from mohs.train.run_data import TEST_SEED, TEST_SHARE
from mohs.train.run_features import embeds, features_for, with_features
from mohs.train.trained import Trained, load_run

FOLDER, NETWORK = "retrained", "run"  # folders of the new runs, and of the network that the audit trained, if any


@dataclass(frozen=True)
class Retrained:
    """Training before and after the correction of labels.

    Attributes:
        before: Folder of the run on the original labels.
        after: Folder of the run on the corrected labels.
        compared: Comparison of the two on held-out examples, `after` first.
        changed: Number of changed labels.
        excluded: Number of excluded examples.
    """

    before: Path
    after: Path
    compared: RunsCompared
    changed: int
    excluded: int


def retrain(folder: Path, labels: pa.Table, data: Data, *, device: str = "auto", watch: Watch = UNWATCHED) -> Retrained:
    """Train on the original and on the corrected labels, and compare.

    Args:
        folder: Folder of the audit.
        labels: As `apply_decisions` returns them.
        data: The audited data.
        device: Device: auto, cpu or cuda.
        watch: Called with an event at each step of training.

    Returns:
        Both runs, and their comparison on held-out examples.
    """
    given = data.train
    run, _ = with_features(audited_run(folder), Data(given), device=device, progress=counting(watch, "embedding"))
    corrected, kept = with_labels(given, labels)
    options: dict[str, Any] = {"runs": Path(folder) / FOLDER, "device": device, "watch": watch}
    held, on = (data.test, "test") if data.test is not None else (data.val, "validation")
    if held is not None:
        own = Path(folder) / NETWORK
        before = load_run(own) if RunDirectory(own).done else train(run, data, **options)
        after = train(run, Data(corrected.take(kept), data.val, data.test), **options)
    else:
        out = torch.zeros(len(given), dtype=torch.bool)
        out[held_out(given.labels, share=TEST_SHARE, seed=TEST_SEED, groups=given.groups)] = True
        usable = torch.zeros(len(given), dtype=torch.bool)
        usable[kept] = True
        if not (out & usable).any():
            raise DataError(f"{given.name}: too few examples of each class to hold some out and compare on them")
        held, on = corrected.take(places(out & usable)), "held-out"
        parts = [places(~out), places(~out & usable), places(out & usable)]
        if embeds(run, given) and given.kind != "table":
            for rows in parts:
                cache_part(given, rows, run.embed or "auto", device=device)
        before, after = (
            train(run, Data(one.take(rows)), **options) for one, rows in zip((given, corrected), parts, strict=False)
        )
    right = [predicted_right(one, held, device) for one in (after, before)]
    changed = int((corrected.labels != given.labels)[kept].sum())
    compared = paired_by_example(right[0], right[1], on=on, seed=run.seed)
    return Retrained(before.folder, after.folder, compared, changed, len(given) - len(kept))


def audited_run(folder: Path) -> Run:
    """The settings of the audit's network; without one, of a linear model on the features that the audit judged by."""
    own, call = Path(folder) / NETWORK, audit_call(folder)
    if RunDirectory(own).done:
        return replace(load_run(own).run, record=False, trace=False, validation=0.0)
    options = {} if call is None else call["options"]
    if options.get("run") is not None or options.get("embed") == "none":
        raise DataError(f"{folder}: this audit judged by a network that is not in its folder: train with mohs train instead")
    data = None if call is None else call["data"]
    embed = str(options.get("embed", "auto"))
    return Run(data=str(data or "data"), embed=embed, seed=int(options.get("seed", 0)), record=False, validation=0.0)


def checked_data(data: Data, data_hash: str) -> Data:
    """The data, validated to be the ones that were audited."""
    if data.train.fingerprint() != data_hash:
        raise DataError(f"{data.name} is not the audited data, or has changed since: give the audited data with --data")
    return data


def predicted_right(trained: Trained, examples: Examples, device: str) -> Any:
    """Whether the prediction is the label, per example (N,)."""
    found = features_for(trained.run, examples, trained.folder, device=device)
    logits = predict(trained.network.to(choose_device(device)), found).logits
    return (logits.argmax(1) == examples.labels).numpy()


def places(mask: Tensor) -> Tensor:
    """mask (N,) -> where it is true."""
    return mask.nonzero().flatten()
