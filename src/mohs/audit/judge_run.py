"""Judge labels by an existing network instead of training one; there are no training dynamics.

The noise model (`hardness.noise_model`) is fitted to its logits. For examples that it was trained on the result carries a
caution: the network may have memorized them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from mohs._core.device import choose_device
from mohs._core.errors import DataError
from mohs._core.specs import as_spec
from mohs.audit.evidence import evidence_table
from mohs.audit.judge_features import judge_examples
from mohs.audit.options import AuditOptions
from mohs.audit.other_issues import other_issues
from mohs.audit.result import AuditResult
from mohs.audit.score_network import score_network
from mohs.data.examples import Data, Examples
from mohs.hardness.human import predict_agreement
from mohs.hardness.noise_rate import estimate_from
from mohs.hardness.table import add_columns
from mohs.hardness.verdict import verdict
from mohs.train.directory import RunDirectory
from mohs.train.run_features import embeds, features_for
from mohs.train.trained import Trained, load_run

MEMORIZED = (
    "The network was trained on these very examples. Unless its loss is robust (gce, gradient_rescaling), it may have memorized "
    "wrong labels, which are then not found. Audit without --run, or with a network trained on other examples."
)


def judge_run(data: Data, options: AuditOptions, folder: Path) -> AuditResult:
    """Scores and verdict by the network of `options.run`."""
    trained = load_run(Path(str(options.run)))
    own = matched(data.train, trained)
    mirror = trained.run.mirrors
    options.step("scores", f"the network of {trained.folder}{', each image and its mirror' if mirror else ''}")
    inputs = features_for(trained.run, own, trained.folder, device=options.device, progress=options.progress("embedding"))
    table, logits, features, near = score_network(trained.network.to(choose_device(options.device)), inputs, mirror=mirror)
    if trained.run.open.get("votes") is not None:
        probs = torch.log_softmax(torch.from_numpy(logits), 1).exp().numpy()
        table = add_columns(table, {"human": predict_agreement(probs, own.labels.numpy())})
    seen = trained_on(trained, data.train)
    options.step("verdict", "by a network that saw these labels" if seen else "out of sample")
    labels = own.labels.numpy()
    judgment = judge_examples(torch.log_softmax(torch.from_numpy(logits), 1).numpy(), own, options)
    loss = as_spec(trained.run.loss)
    return AuditResult.of(
        data.train,
        table=verdict(table, judgment=judgment, precision=options.precision),
        estimate=estimate_from(judgment, labels, own.classes, seed=options.seed),
        chosen=loss["name"] + ":" * (len(loss) > 1) + ",".join(f"{key}={value}" for key, value in loss.items() if key != "name"),
        reason="This is the loss of the given run.",
        held_out=None if seen else (judgment.probs, labels),
        evidence=evidence_table(judgment.probs, own.classes, near),
        annotators=judgment.annotators,
        issues=other_issues(replace(data, train=own), options, features=features, near=near, probs=judgment.probs),
        facts={
            "model": as_spec(trained.run.model)["name"],
            "network of": str(trained.folder),
            "out of sample": "no" if seen else "yes, unless the run's own data overlap with these",
            "expected precision": options.precision,
            **judgment.facts,
            **({"caution": MEMORIZED} if seen else {}),
        },
    )


def matched(examples: Examples, trained: Trained) -> Examples:
    """The examples with labels that are rows of the network's head; an error if the network cannot read them."""
    about = RunDirectory(trained.folder).about
    shape = tuple(about["shape"])
    kind = about.get("inputs", {}).get("kind", "images" if len(shape) == 3 else "features")
    if examples.kind != kind:
        raise DataError(f"{examples.name}: {examples.kind}, but {trained.folder} was trained on {kind}")
    if not embeds(trained.run, examples) and examples.shape != shape:
        hint = (
            f": pass image_size={shape[-1]} (--image-size)"
            if len(shape) == len(examples.shape) == 3 and shape[0] == examples.shape[0]
            else ""
        )
        raise DataError(f"{examples.name}: inputs are {_by(examples.shape)}, but {trained.folder} takes {_by(shape)}{hint}")
    place: dict[Any, int] = {str(name): i for i, name in enumerate(trained.classes)}
    missing = [name for name in examples.classes if str(name) not in place]
    if missing:
        known = ", ".join(map(str, trained.classes[:10]))
        raise DataError(f"{examples.name}: {trained.folder} does not know the class {missing[0]!r}; it knows {known}")
    rows = torch.tensor([place[str(name)] for name in examples.classes])
    votes, classes = examples.votes, list(trained.classes)
    if votes is not None:
        votes = replace(votes, label=rows.numpy()[votes.label], classes=classes)
    return replace(examples, labels=rows[examples.labels], classes=classes, votes=votes)


def trained_on(trained: Trained, examples: Examples) -> bool:
    """Whether the run was trained on these examples."""
    about = RunDirectory(trained.folder).about
    return examples.fingerprint() in about["data"]["fingerprint"].split("-")


def _by(shape: tuple[int, ...]) -> str:
    return " × ".join(map(str, shape))
