"""Out-of-fold scores of several closed-form classifiers on features, with a robust second fit.

    lda         linear discriminant analysis with shrinkage on the leading principal axes
    rbf_lda     the same on RBF units (Nyström landmarks), of the kernel width that fits better
    rbf_ridge   ridge regression to the labels on RBF units
    neighbors   votes of the nearest neighbors by cosine, weighted by rank

Rows fall into F folds, class by class; the scores of a fold's rows come from fits without that fold. The linear heads only need
sums over folds (Gram matrices Σ x xᵀ and class sums Σ x y), so leaving folds out costs a subtraction and a small solve.
Each head's regularization is the one under which its out-of-fold scores make the given labels most likely.

Second fit: a noise model says how likely each class is for every row, from heads that saw neither the row's fold nor the fold
that is to be scored (fits without two folds); the targets of the second fit lie halfway between the given label and that
posterior. So wrong labels mislead it less, and no label takes part in its own scores. A third fit has the predicted classes as
targets: its uncertainty distinguishes ambiguous examples from noise (`hardness.judgment`).

The linear heads of the second fit are kept (`FoldScores.heads`): they score rows that they were not fitted to (`FittedHead`).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from mohs.data.groups import count_groups, group_folds
from mohs.hardness.judgment import ambiguous_share
from mohs.hardness.learned_odds import Refit, equal_rows
from mohs.hardness.neighbors import NONE, nearest
from mohs.hardness.noise_model import NoiseModel, fit_noise
from mohs.train.feature_map import check_features
from mohs.train.head_inputs import BLOCK, Axes, RbfUnits, principal_axes, rbf_units, uneven

FOLDS, MORE_FOLDS, FEW = 5, 10, 2000  # folds; more folds for at most FEW examples, so that each head sees more of them
WIDTH, LANDMARKS, MANY = 256, 400, 12_000  # axes, landmarks; with more examples than MANY neighbors are not searched on a CPU
GPU_WIDTH, GPU_LANDMARKS, GPU_MANY = 1024, 3000, 200_000
LDA_STRENGTHS, RIDGE_STRENGTHS, NEIGHBOR_RANKS = (0.01, 0.1, 0.5), (1e-3, 1e-2, 1e-1), (5.0, 15.0)
NEIGHBORS = 60
REACHES = (1.0, 0.3)  # candidate widths of the RBF kernel, relative to the median squared distance
ROBUST = 0.5  # share of the posterior in the targets of the second fit
Array = np.ndarray[Any, Any]
Progress = Callable[[int, int], None]
Pairs = dict[tuple[str, int, int], tuple[Tensor, Tensor]]  # head and two folds -> the fit without both, which scores both


@dataclass(frozen=True, eq=False)
class FoldScores:
    """Out-of-fold scores.

    Attributes:
        scores: Scores (M, N, K) of the heads for rows whose labels they did not see.
        fold: Fold of each row (N,).
        names: Names of the heads.
        chosen: Strength of each head's regularization.
        model: The noise model fitted to the scores and the labels.
        ambiguity: Share of the heads' doubt that is due to ambiguous examples.
        refit: Predictions of the third fit, to the predicted classes.
        heads: The linear heads by name.
    """

    scores: Array = field(repr=False)
    fold: Array = field(repr=False)
    names: list[str]
    chosen: dict[str, float]
    model: NoiseModel = field(repr=False)
    ambiguity: float
    refit: Refit = field(repr=False)
    heads: Mapping[str, FittedHead] = field(repr=False)


@dataclass(frozen=True, eq=False)
class FittedHead:
    """A linear head, fitted once without each fold: `map(x) @ weight[f] + bias[f]` scores rows x (n, D) of fold f.

    Attributes:
        map: From features (n, D) to the inputs of the head (n, r).
        weight: Weights (F, r, K).
        bias: Biases (F, K).
    """

    map: Axes | RbfUnits
    weight: Tensor
    bias: Tensor


class _Head(Protocol):
    @property
    def strengths(self) -> Sequence[float]: ...

    def scores(self, out: Sequence[int], held: int, sums: Any, strength: float) -> Tensor: ...

    def sums(self, targets: Tensor) -> Any: ...


def fold_scores(
    features: Any,
    labels: Tensor,
    *,
    num_classes: int,
    folds: int | None = None,
    seed: int = 0,
    device: torch.device | str = "cpu",
    groups: Tensor | None = None,
    linear: bool = False,
    kind: str = "embedding",
    progress: Progress | None = None,
) -> FoldScores:
    """Score every example by heads that did not see its label.

    Args:
        features: Array or tensor (N, D), or several of them by name, each with its own heads.
        labels: Class indices (N,).
        num_classes: Number of classes K.
        folds: Number of cross-validation folds, at least 3; default: as `default_folds` says.
        seed: Random seed of folds and landmarks.
        groups: Groups (N,) that stay whole in the folds, so that no head sees one of an example's group.
        device: Where to compute; on a GPU more axes, landmarks and neighbors are used.
        linear: Whether to leave out the heads that cannot score other rows: neighbors.
        kind: What the features are, passed on to `FoldScores.refit`: an embedding, columns of numbers, or a table.
        progress: Called with (steps done, steps in all).
    """
    sets: Mapping[str, Any] = features if isinstance(features, Mapping) else {"features": features}
    folds = default_folds(len(labels), groups) if folds is None else folds
    if folds < 3:
        raise ValueError(f"folds must be at least 3, for the second fit leaves two of them out, got {folds}")
    labels, device = labels.cpu(), torch.device(device)
    fold = assign_folds(labels, folds=folds, seed=seed, groups=groups)
    heads: dict[str, _Head] = {}
    for name, values in sets.items():
        check_features(values)
        made = _heads(values, fold.to(device), labels, num_classes, seed, linear=linear)
        heads |= {f"{name} {kind}": head for kind, head in made.items()}
    tell, given = _counter(progress, 2 + folds), torch.nn.functional.one_hot(labels, num_classes).float()
    rows = [(fold == f).nonzero().squeeze(1) for f in range(folds)]
    first, chosen = torch.zeros(len(heads), len(labels), num_classes), {}
    for m, (name, head) in enumerate(heads.items()):
        chosen[name], first[m] = _best(head, rows, given.to(device), labels)
    tell()
    fit = fit_noise(first.numpy(), labels.numpy())
    tell()
    second, again = torch.empty_like(first), torch.empty_like(first)
    fits: dict[str, list[tuple[Tensor, Tensor]]] = {name: [] for name, head in heads.items() if isinstance(head, _Linear)}
    sums = {name: head.sums(given.to(device)) for name, head in heads.items()}
    pairs: Pairs = {}
    for f in range(folds):
        inner = torch.zeros_like(first)
        for g in range(folds):
            if g != f:
                inner[:, rows[g]] = _without_two(heads, f, g, sums, chosen, pairs)
        p = fit.probs(inner.numpy())
        posterior, guess = torch.from_numpy(fit.posterior(p, labels.numpy())).float(), torch.from_numpy(p.argmax(1))
        robust = (ROBUST * posterior + (1 - ROBUST) * given).to(device)
        guessed = torch.nn.functional.one_hot(guess, num_classes).float().to(device)
        for m, (name, head) in enumerate(heads.items()):
            again[m, rows[f]] = head.scores([f], f, head.sums(guessed), chosen[name]).cpu()
            if isinstance(head, _Linear):
                fits[name].append(head.fit([f], head.sums(robust), chosen[name]))
                second[m, rows[f]] = head.scores_by(fits[name][-1], f).cpu()
            else:
                second[m, rows[f]] = head.scores([f], f, head.sums(robust), chosen[name]).cpu()
        tell()
    width = max(min(values.shape[1], GPU_WIDTH if device.type == "cuda" else WIDTH) for values in sets.values())
    model = fit_noise(second.numpy(), labels.numpy())
    probs = model.probs(second.numpy())
    refitted = fit_noise(again.numpy(), probs.argmax(1)).probs(again.numpy()).astype(np.float32)
    twins = None if kind == "embedding" else equal_rows(np.asarray(next(iter(sets.values()))))
    refit = Refit(refitted, width, kind, twins, None if groups is None else groups.numpy())
    ambiguity = ambiguous_share(probs, refit.probs, labels.numpy(), width=width)
    fitted = {name: _fitted(heads[name], own) for name, own in fits.items()}
    return FoldScores(second.numpy(), fold.numpy(), list(heads), chosen, model, ambiguity, refit, fitted)


def _without_two(
    heads: Mapping[str, _Head], f: int, g: int, sums: Mapping[str, Any], chosen: Mapping[str, float], pairs: Pairs
) -> Tensor:
    """Scores (M, n, K) of fold g's n rows by heads that saw neither fold f nor fold g, which `pairs` keeps for fold f."""
    scores = []
    for name, head in heads.items():
        if isinstance(head, _Linear):
            if f < g:
                pairs[name, f, g] = head.fit([f, g], sums[name], chosen[name])
            own = pairs[name, f, g] if f < g else pairs.pop((name, g, f))
            scores.append(head.scores_by(own, g).cpu())
        else:
            scores.append(head.scores([f, g], g, sums[name], chosen[name]).cpu())
    return torch.stack(scores)


def _fitted(head: _Head, fits: Sequence[tuple[Tensor, Tensor]]) -> FittedHead:
    assert isinstance(head, _Linear)
    return FittedHead(head.map, *(torch.stack(parts) for parts in zip(*fits, strict=True)))


def _heads(features: Any, fold: Tensor, labels: Tensor, classes: int, seed: int, *, linear: bool = False) -> dict[str, _Head]:
    """The heads on one set of features (N, D), on the folds' device."""
    device = fold.device
    large = device.type == "cuda"
    tensor = features if isinstance(features, Tensor) else torch.from_numpy(np.array(features))
    tensor = tensor.to(device)
    rows = [(fold == f).nonzero().squeeze(1) for f in range(int(fold.max()) + 1)]
    given = torch.nn.functional.one_hot(labels, classes).float().to(device)
    best: tuple[float, Axes, Tensor, _Linear] | None = None
    for scale in (True, False) if uneven(tensor) else (True,):
        axes, x = principal_axes(tensor, GPU_WIDTH if large else WIDTH, scale=scale)
        for reach in REACHES:
            to_units, units = rbf_units(axes, x, min(len(x) // 2, GPU_LANDMARKS if large else LANDMARKS), seed, reach)
            ridge = _Linear(to_units, units, rows, lda=False)
            value = _likelihood(_best(ridge, [own.cpu() for own in rows], given, labels)[1], labels)
            if best is None or value > best[0]:
                best = (value, axes, x, ridge)
    assert best is not None
    _, axes, x, ridge = best
    heads: dict[str, _Head] = {"lda": _Linear(axes, x, rows, lda=True), "rbf_lda": ridge.as_lda(), "rbf_ridge": ridge}
    if not linear and len(x) <= (GPU_MANY if large else MANY):
        heads["neighbors"] = _Neighbors(x, fold, rows)
    return heads


def _counter(progress: Progress | None, steps: int) -> Callable[[], None]:
    """A function that reports one more step at each call."""
    done = 0

    def tell() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, steps)

    return tell


def default_folds(rows: int, groups: Tensor | None = None) -> int:
    """Number of cross-validation folds for this many rows: 10 for up to 2,000, else 5; at most one per group.

    groups: the rows' groups (N,); without them each row is one.
    """
    folds = MORE_FOLDS if 2 * MORE_FOLDS <= rows <= FEW else min(FOLDS, rows)
    return folds if groups is None else min(folds, count_groups(groups))


def assign_folds(labels: Tensor, *, folds: int = FOLDS, seed: int = 0, groups: Tensor | None = None) -> Tensor:
    """labels (N,) -> a fold for each (N,); fold sizes differ by at most one, and so do the parts of each class.

    With groups (N,), folds consist of whole groups and are as balanced as the groups allow.
    """
    if groups is not None:
        return group_folds(labels, groups, folds=folds, seed=seed)
    if not 2 <= folds <= len(labels):
        raise ValueError(f"folds must be at least 2 and at most {len(labels)}, the number of rows, got {folds}")
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    order = order[torch.argsort(labels[order], stable=True)]  # class by class, shuffled within
    fold = torch.empty(len(labels), dtype=torch.int64)
    fold[order] = torch.arange(len(labels)) % folds
    return fold


class _Linear:
    """LDA or ridge regression from Gram matrices by fold."""

    def __init__(self, to_inputs: Axes | RbfUnits, x: Tensor, rows: Sequence[Tensor], *, lda: bool) -> None:
        self.map, self.x, self.rows, self.lda = to_inputs, x, rows, lda
        self.grams = torch.stack([x[own].T @ x[own] for own in rows]).double()  # (F, r, r)
        self.totals = torch.stack([x[own].sum(0) for own in rows]).double()  # (F, r)
        self.strengths: Sequence[float] = LDA_STRENGTHS if lda else RIDGE_STRENGTHS

    def as_lda(self) -> _Linear:
        """LDA from the same Gram matrices."""
        other = copy.copy(self)
        other.lda, other.strengths = True, LDA_STRENGTHS
        return other

    def sums(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Class sums Σ x tᵀ (F, r, K) and sizes (F, K) by fold, for targets (N, K)."""
        sums = torch.stack([self.x[own].T @ targets[own] for own in self.rows]).double()
        return sums, torch.stack([targets[own].sum(0) for own in self.rows]).double()

    def scores(self, out: Sequence[int], held: int, sums: tuple[Tensor, Tensor], strength: float) -> Tensor:
        """Scores of the rows of fold `held` by the fit without the folds `out`."""
        return self.scores_by(self.fit(out, sums, strength), held)

    def scores_by(self, fit: tuple[Tensor, Tensor], held: int) -> Tensor:
        """Scores of the rows of fold `held` by this weight (r, K) and bias (K,)."""
        weight, bias = fit
        return self.x[self.rows[held]] @ weight + bias

    def fit(self, out: Sequence[int], sums: tuple[Tensor, Tensor], strength: float) -> tuple[Tensor, Tensor]:
        """Weight (r, K) and bias (K,) of the fit without the folds `out`."""
        kept = [f for f in range(len(self.rows)) if f not in out]
        gram, total = self.grams[kept].sum(0), self.totals[kept].sum(0)
        by_class, sizes = sums[0][kept].sum(0), sums[1][kept].sum(0) + 1e-3
        number, width = sizes.sum(), gram.shape[0]
        if self.lda:
            means = by_class / sizes  # (r, K)
            within = gram - (means * sizes) @ means.T
            trace = torch.clamp(within.trace() / width, min=1e-8 * float(gram.trace()) / width)
            weight = _solve((1 - strength) * within, float(strength * trace), means) * number
            bias = (sizes / number).log() - 0.5 * (means * weight).sum(0)
        else:
            prior = sizes / number
            weight = _solve(gram, strength * float(number) / math.sqrt(width), by_class - total[:, None] * prior)
            bias = prior
        return weight.to(self.x.dtype), bias.to(self.x.dtype)


class _Neighbors:
    """Votes of the nearest neighbors, of weight exp(−rank/strength)."""

    strengths: Sequence[float] = NEIGHBOR_RANKS

    def __init__(self, x: Tensor, fold: Tensor, rows: Sequence[Tensor]) -> None:
        self.fold, self.rows = fold, rows
        self.near = nearest(x, k=min(NEIGHBORS, len(x) - 1), references=max(len(x), 1))

    def sums(self, targets: Tensor) -> Tensor:
        return targets

    def scores(self, out: Sequence[int], held: int, sums: Tensor, strength: float) -> Tensor:
        kept = torch.isin(self.fold, torch.tensor(list(out), device=self.fold.device), invert=True)
        prior = sums[kept].mean(0) + 1e-6
        votes = []
        for near in torch.split(self.near[self.rows[held]], BLOCK):
            there = kept[near.clamp(min=0)] & (near != NONE)
            weight = torch.where(there, torch.exp(-(there.cumsum(1) - 1) / strength), 0.0)[:, : int(4 * strength)]
            cast = torch.zeros(len(near), sums.shape[1], dtype=sums.dtype, device=sums.device)
            for j in range(weight.shape[1]):  # without an (n, neighbors, K) array
                cast += weight[:, j : j + 1] * sums[near[:, j].clamp(min=0)]
            votes.append(torch.log((cast + 0.5 * prior) / (cast.sum(1, keepdim=True) + 0.5)))
        return torch.cat(votes)


def _best(head: _Head, rows: Sequence[Tensor], targets: Tensor, labels: Tensor) -> tuple[float, Tensor]:
    """The regularization whose out-of-fold scores make the labels most likely, and those scores (N, K) on the CPU."""
    best: tuple[float, float, Tensor] | None = None
    sums = head.sums(targets)
    for strength in head.strengths:
        scores = torch.empty(targets.shape, dtype=targets.dtype)
        for f, own in enumerate(rows):
            scores[own] = head.scores([f], f, sums, strength).cpu()
        value = _likelihood(scores, labels)
        if best is None or value > best[0]:
            best = (value, strength, scores)
    assert best is not None
    return best[1], best[2]


def _likelihood(scores: Tensor, labels: Tensor) -> float:
    """The best mean log-likelihood of labels under softmax(a s) mixed with even noise, over a small grid."""
    classes = scores.shape[1]
    z = scores - scores.amax(1, keepdim=True)
    size = float((z - z.mean(1, keepdim=True)).square().mean().sqrt()) + 1e-12
    best = -math.inf
    for a in np.geomspace(0.3, 20, 9) / size:
        e = torch.exp(a * z)
        p = e.gather(1, labels.unsqueeze(1)).squeeze(1) / e.sum(1)
        for rate in (0.01, 0.05, 0.1, 0.2, 0.4):
            best = max(best, float(((1 - rate) * p + rate * (1 - p) / max(classes - 1, 1) + 1e-12).log().mean()))
    return best


def _solve(a: Tensor, ridge: float, b: Tensor) -> Tensor:
    """(a + ridge I)⁻¹ b for a symmetric a; more ridge where rounding has left it indefinite."""
    a = a.clone()
    size = float(a.diagonal().mean().abs())
    a.diagonal().add_(ridge + 1e-9 * size)
    for _ in range(6):
        factor, info = torch.linalg.cholesky_ex(a)
        if int(info) == 0:
            return torch.cholesky_solve(b, factor)
        a.diagonal().add_(max(1e-4 * size, 1e-12))
    solution: Tensor = torch.linalg.lstsq(a, b).solution
    return solution
