"""Training dynamics of an example: the measurements of each update, the statistics that are kept, and the columns computed from
them.

    aum              mean of z_y − max_{k≠y} z_k            mean_margin       mean of m
    mean_confidence  mean of p = σ(m)                       variability       standard deviation of p (divide by n)
    mean_avh         mean of AVH                            forgetting        number of times it was correct, then incorrect
    first_learned    first epoch at which it was correct; the number of epochs if never

An example is correct if its label has the largest logit. Two tensors are kept: sums in float64, to which each update adds, and
the state after the latest update.
An example that was never learned counts as forgotten at every epoch: its `forgetting` is the largest number of epochs of any
example, more than any learned example can reach. Toneva et al. count it as forgotten infinitely often.
AUM: Pleiss et al. (NeurIPS 2020). Data maps: Swayamdipta et al. (EMNLP 2020), Section 2. Forgetting: Toneva et al.
(ICLR 2019), Definition 1.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mohs.margin import INF, full_precision

DYNAMICS = ("aum", "mean_margin", "mean_confidence", "variability", "mean_avh", "forgetting", "first_learned")
SUMS = ("count", "gap", "margin", "confidence", "square", "forgetting", "avh")
STATE = ("gap", "margin", "confidence", "predicted", "label", "updates", "first_learned", "epoch", "top_confidence")
NEVER, NO_CLASS = INF, -1.0


def blank(examples: int, tracked: tuple[str, ...]) -> tuple[Tensor, Tensor]:
    """Sums (up to 7, N) and state (9, N) before any update; only the sums that the tracked columns need."""
    sums = torch.zeros(2 if tracked == ("aum",) else len(SUMS) - ("mean_avh" not in tracked), examples, dtype=torch.float64)
    start = {"predicted": NO_CLASS, "label": NO_CLASS, "updates": 0.0, "first_learned": NEVER, "epoch": -1.0}
    return sums, torch.tensor([[start.get(name, torch.nan)] for name in STATE]).repeat(1, examples)


def gap_parts(logits: Tensor, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """logits (B, K), index (B, 1) -> the label's logit, the largest other (B, 1 each), and the others (B, K), −∞ at the label."""
    if logits.dtype != torch.float32:  # the check costs less than a conversion
        logits = logits.to(full_precision(logits.dtype))
    others = logits.scatter(1, index, -INF)
    return logits.gather(1, index), others.amax(1, keepdim=True), others


def broken_rows(logits: Tensor, labels: Tensor) -> Tensor:
    """Which rows (B,) have no finite gap: a NaN, a +∞, a label at −∞, or no other class."""
    own, top, _ = gap_parts(logits, labels.clamp(0, logits.shape[1] - 1).unsqueeze(1))
    return ~(own - top).isfinite().squeeze(1)


def observe(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """logits (B, K), labels (B,) -> gap, margin, confidence, confidence of the predicted class (B,) each."""
    own, top, others = gap_parts(logits, labels.unsqueeze(1))
    gap = (own - top).squeeze(1)
    total = others.sub_(top).exp_().sum(1)  # sum over the other classes, relative to the largest of them
    margin = gap - total.log()
    confidence = margin.sigmoid()
    return gap, margin, confidence, torch.where(gap > 0, confidence, (1 - confidence) / total)


def advance(before: Tensor, seen: tuple[Tensor, ...], named: tuple[Tensor, Tensor], epoch: int | None) -> tuple[Tensor, Tensor]:
    """What an update adds to the sums (6, B), and the state after it (9, B).

    before: the state (9, B); seen: gap, margin, confidence, top confidence; named: prediction and label; all (B,).
    Contiguous parts of one type are stacked several times faster than others.
    """
    gap, margin, confidence, top = seen
    predicted, label = named
    was_gap, _, _, _, _, updates, first, _, _ = before.unbind()
    right = gap > 0
    forgotten = (was_gap > 0) > right  # was correct and is not (at the first update NaN > 0 is false)
    now = updates if epoch is None else torch.full_like(updates, epoch)
    learned = torch.where(right, torch.minimum(first, now), first)
    added = torch.stack([torch.ones_like(gap), gap, margin, confidence, confidence, forgotten.to(gap.dtype)]).double()
    added[4].mul_(added[3])  # squared in float64, or the variability of a constant example would be rounding error
    return added, torch.stack(
        [gap, margin, confidence, predicted.to(gap.dtype), label.to(gap.dtype), updates + 1, learned, now, top]
    )


def summarize(sums: Tensor, state: Tensor, tracked: tuple[str, ...]) -> dict[str, Tensor]:
    """The dynamics' columns, (N,) each; a mean is NaN where nothing was seen."""
    count = sums[0]
    mean = dict(zip(SUMS, (sums / count).unbind(), strict=False))  # 0/0 = NaN
    made = {"aum": mean["gap"]}
    if "margin" in mean:
        first, epoch = state[STATE.index("first_learned")], state[STATE.index("epoch")]
        made |= {
            "mean_margin": mean["margin"],
            "mean_confidence": mean["confidence"],
            "variability": (mean["square"] - mean["confidence"].square()).clamp(min=0).sqrt(),
            "forgetting": torch.where((first == NEVER) & (count > 0), count.max(), sums[SUMS.index("forgetting")]).long(),
            "first_learned": torch.where(first == NEVER, torch.maximum(count, epoch + 1), first).long(),
            "mean_avh": mean.get("avh", count),
        }
    return {name: made[name] for name in tracked} | {"epochs": count.long()}
