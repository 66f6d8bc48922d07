"""Judge labels by features: heads in folds, so that every example is scored by heads that did not see its label.

features     as given, or those of images and texts by an embedder (`mohs.embed`)
images       their pixels at up to 32 × 32 as well: the noise model weights both by how likely they make the labels
texts        their words as well (wordllama and TF-IDF), where sentence embeddings are the features
scores       closed-form heads, fitted twice (`train.fold_heads`); also a random forest if features are few
judgment     noise model over all heads (`hardness.judgment`)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from mohs._core.device import choose_device
from mohs.audit.evidence import Near, evidence_table, on_map
from mohs.audit.options import Array, AuditOptions
from mohs.audit.other_issues import other_issues
from mohs.audit.previous import kept_neighbors, load_previous
from mohs.audit.result import AuditResult
from mohs.data.examples import Data, Examples
from mohs.data.groups import alone
from mohs.data.resize import resize_images
from mohs.embed.embed_data import embed
from mohs.embed.text_embedders import has_wordllama
from mohs.hardness.checked_labels import CheckedLabels
from mohs.hardness.human import predict_agreement
from mohs.hardness.judge_checks import judge_by_checks
from mohs.hardness.judge_votes import judge_by_votes
from mohs.hardness.judgment import LabelJudgment, judge_labels
from mohs.hardness.learned_odds import Refit
from mohs.hardness.measure import host, measure, overall, table_of
from mohs.hardness.neighbor_index import how_nearest, many_nearest
from mohs.hardness.neighbors import agreement
from mohs.hardness.noise_model import NoiseModel
from mohs.hardness.noise_rate import estimate_from
from mohs.hardness.table import add_columns
from mohs.hardness.verdict import verdict
from mohs.train.checkpoint import load_tree, save_tree
from mohs.train.fold_heads import FoldScores
from mohs.train.fold_judge import scores_in_folds
from mohs.train.fold_votes import fold_votes
from mohs.train.trained import with_origin

PIXELS, PIXELS_FROM = 32, 64  # side of the pixel features; largest side of images that are also judged by their pixels
EMBEDDED_FROM = 20  # smallest side of images that are embedded
CHUNK = 4096


def judge_features(data: Data, options: AuditOptions, folder: Path) -> AuditResult:
    """Judge features, images or texts."""
    began, train = time.perf_counter(), data.train
    features, about = features_of(data, options)
    options.step("judge", f"heads on {about} in {options.folds} folds")
    kept = kept_scores(folder / "fold-scores.safetensors", train, lambda: head_scores(features, train, options))
    judgment = judge_examples(kept.scores, train, options, ambiguity=kept.ambiguity, refit=kept.refit, model=kept.model)
    first = next(iter(features.values()))
    how = how_nearest(len(train), choose_device(options.device))
    options.step("scores", f"margins, angles and neighbors ({how})")
    near = kept_neighbors(load_previous(options), train, about) or neighbors_of(first, options)
    table = neighbor_column(scored_table(judgment, train, first), train, near)
    if train.votes is not None:
        table = add_columns(table, {"human": agreement_by_votes(first, train, options)})
    facts = {
        "features": about,
        "model": f"{len(kept.names)} heads in {options.folds} folds",
        "seconds": round(time.perf_counter() - began, 1),
        "out of sample": "yes: no head saw the labels it judges",
        "neighbors": how,
    }
    return judged(data, on_map(table, first), judgment, options, facts, first, near)


def judge_examples(
    scores: Any,
    examples: Examples,
    options: AuditOptions,
    *,
    ambiguity: float = 1.0,
    refit: Refit | None = None,
    model: NoiseModel | None = None,
) -> LabelJudgment:
    """Judge the examples' labels by out-of-sample scores, people's votes, and checked labels."""
    labels, groups = examples.labels.numpy(), None if examples.groups is None else examples.groups.numpy()
    judgment = judge_labels(
        scores, labels, precision=options.precision, ambiguity=ambiguity, refit=refit, model=model, groups=groups
    )
    if examples.votes is not None:
        judgment = judge_by_votes(judgment, examples.votes, labels, precision=options.precision)
    if isinstance(options.checked, CheckedLabels):
        return judge_by_checks(judgment, options.checked, labels, examples.classes, precision=options.precision)
    return judgment


def agreement_by_votes(features: Any, examples: Examples, options: AuditOptions) -> Array:
    """The share of people who would choose the label (N,), by heads fitted to the votes on other examples."""
    assert examples.votes is not None
    counts, labels = torch.from_numpy(examples.votes.tally(len(examples))), examples.labels
    told = {"folds": options.folds, "seed": options.seed, "groups": examples.groups, "progress": options.progress("votes")}
    return predict_agreement(fold_votes(features, counts, labels, **told), labels.numpy())  # type: ignore[arg-type]


def judged(
    data: Data,
    table: pa.Table,
    judgment: LabelJudgment,
    options: AuditOptions,
    facts: Mapping[str, Any],
    features: Any = None,
    near: Near | None = None,
) -> AuditResult:
    """The result of an out-of-sample judgment; near: the nearest examples by the features, if there are any."""
    options.step("verdict", f"flagging at an expected precision of {options.precision:.0%}")
    train, labels = data.train, data.train.labels.numpy()
    known = ~np.isnan(judgment.p_mislabeled)
    return AuditResult.of(
        train,
        table=verdict(table, judgment=judgment, precision=options.precision),
        estimate=estimate_from(judgment, labels, train.classes, seed=options.seed),
        held_out=(judgment.probs[known], labels[known]),
        evidence=evidence_table(judgment.probs, train.classes, near),
        annotators=judgment.annotators,
        issues=other_issues(data, options, features=features, near=near, probs=judgment.probs),
        facts={**facts, "seed": options.seed, "expected precision": options.precision, **judgment.facts},
    )


def features_of(data: Data, options: AuditOptions) -> tuple[dict[str, Any], str]:
    """The sets of features to judge by, by name, and a description."""
    train = data.train
    if train.kind == "features":
        return {"features": torch.as_tensor(train.inputs)}, f"{train.shape[0]:,} features"
    if train.kind == "images" and not embeds(train, options):
        options.step("features", f"pixels ({train.shape[1]} × {train.shape[2]} images are too small for an embedder)")
        return {"pixels": pixels(train)}, "pixels"
    options.step("features", "embedding")
    found = embed(Data(train), options.embed, device=options.device, progress=options.progress("embedding"))
    options.tell(found.summary())
    if train.kind == "text":
        if found.embedder != "minilm" or options.embed != "auto" or not has_wordllama():
            return {"text": found.features}, found.about
        words = embed(Data(train), "text", device=options.device)
        return {"text": found.features, "words": words.features}, f"{found.about}, and {words.about}"
    if max(train.shape[1:]) > PIXELS_FROM:
        return {"embedding": found.features}, found.about
    return {"embedding": found.features, "pixels": pixels(train)}, f"{found.about}, and pixels"


def embeds(examples: Examples, options: AuditOptions) -> bool:
    """Whether an embedder is run: always on texts; on images unless they are tiny and no embedder is named."""
    if examples.kind == "images":
        return options.embed != "auto" or min(examples.shape[1:]) >= EMBEDDED_FROM
    return examples.kind == "text"


def pixels(examples: Examples) -> Array:
    """Images as vectors (N, C·h·w) from 0 to 1, at most 32 × 32."""
    made = []
    for rows in torch.split(torch.arange(len(examples)), CHUNK):
        images: Tensor = examples.inputs[rows]
        height, width = images.shape[-2:]
        if max(height, width) > PIXELS:
            images = resize_images(images, (PIXELS, PIXELS))
        made.append((images.float() / 255).flatten(1))
    return torch.cat(made).numpy()


def head_scores(features: Mapping[str, Any], train: Examples, options: AuditOptions) -> tuple[dict[str, Array], FoldScores]:
    """Scores (N, K) of each model by its name, and the fit of the heads among them."""
    return scores_in_folds(
        features, train.labels, num_classes=len(train.classes), folds=options.folds, seed=options.seed,
        device=choose_device(options.device), groups=train.groups, progress=options.progress("judging"),
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class KeptScores:
    """Scores (M, N, K) of the models `names`.

    ambiguity and refit as of `FoldScores`, where its heads are among them; model too, where these are all scores.
    """

    scores: Array
    names: list[str]
    ambiguity: float = 1.0
    refit: Refit | None = None
    model: NoiseModel | None = None


def kept_scores(file: Path, train: Examples, make: Callable[[], tuple[Mapping[str, Array], FoldScores | None]]) -> KeptScores:
    """What `make` returns, kept in the file for an audit that is interrupted later."""
    if not file.exists():
        made, heads = make()
        scores = np.stack([np.asarray(one, dtype=np.float32) for one in made.values()])
        if heads is not None:  # models fitted without the only fold that holds a class do not know that class
            scores[:, alone(train.labels, torch.from_numpy(heads.fold)).numpy()] = np.nan
        tree: dict[str, Any] = {"scores": torch.from_numpy(scores), "names": list(made)}
        if heads is not None:
            tree |= {"ambiguity": heads.ambiguity, "refit": _as_tensors(heads.refit)}
            if heads.names == list(made) and np.isfinite(scores).all():
                tree["model"] = _as_tensors(heads.model)
        save_tree(tree, file)
    kept = load_tree(file)
    if "twins" not in kept.get("refit", {"twins": None}):  # kept by an earlier version
        file.unlink()
        return kept_scores(file, train, make)
    scores, names = kept["scores"].numpy(), kept["names"]
    if "refit" not in kept:
        return KeptScores(scores, names)
    model = NoiseModel(**_as_arrays(kept["model"])) if "model" in kept else None
    return KeptScores(scores, names, kept["ambiguity"], Refit(**_as_arrays(kept["refit"])), model)


def _as_tensors(fit: Refit | NoiseModel) -> dict[str, Any]:
    """The fields by name, as `save_tree` takes them."""
    return {name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value for name, value in vars(fit).items()}


def _as_arrays(tree: Mapping[str, Any]) -> dict[str, Any]:
    """The fields by name, from what `_as_tensors` made."""
    return {name: value.numpy() if isinstance(value, Tensor) else value for name, value in tree.items()}


def scored_table(judgment: LabelJudgment, train: Examples, features: Any = None) -> pa.Table:
    """Measurements of the judge's predictions; angles are those to the means of the classes, of centered features."""
    log_p = torch.from_numpy(np.log(judgment.probs.clip(1e-12))).float()
    weight = values = None
    if features is not None:
        values = torch.as_tensor(np.asarray(features)).float()
        values = values - values.mean(0)
        hot = torch.nn.functional.one_hot(train.labels, len(train.classes)).float()
        weight = (hot.T @ values) / hot.sum(0).clamp(min=1).unsqueeze(1)
    columns = host(measure(log_p, train.labels, values, weight))
    return table_of({"id": np.arange(len(train)), **columns, **overall(columns)}, train.classes)


def neighbors_of(features: Any, options: AuditOptions) -> Near:
    """The nearest examples of each, and their cosines."""
    return many_nearest(torch.as_tensor(np.asarray(features)).float(), device=choose_device(options.device))


def neighbor_column(table: pa.Table, train: Examples, near: Near) -> pa.Table:
    """The table with the agreement of the nearest neighbors, and with the examples' keys and paths."""
    return with_origin(add_columns(table, {"neighbors": agreement(near[0], train.labels)}), train)
