"""Loss and margin of a linear head in chunks of rows, so that the (N, K) logits never exist.

    chunk: z = x Wᵀ + b  →  margin of each row  →  ∂z over z  →  ∂x = ∂z W,  ∂W += ∂zᵀ x,  ∂b += Σ ∂z

`head_loss` does all of it in the forward pass, three matrix products: for the mean or sum of a curve, where ∂L/∂m is known
at once. `head_margin` returns the margins and computes the logits again in the backward pass, a fourth product: for any
function of the margins. Buffers hold one chunk, an eighth of the size of the weights or `SMALLEST` bytes. ∂W is
added up in the dtype of the weights, with float32 sums inside each product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mohs.margin import INF, full_precision, softplus
from mohs.margin._choose import SHORT, keeps_graph, takes

SMALLEST = 1 << 26  # bytes of a chunk of logits, at least
Curve = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Scores:
    """From products to logits: the products themselves (angle_scale = 0), or −angle_scale · arccos of them."""

    angle_scale: float = 0.0
    dtype: torch.dtype = torch.float32  # of the logits, if they are angles

    def logits(self, products: Tensor) -> Tensor:
        if not self.angle_scale:
            return products
        edge = 1 - 4 * torch.finfo(products.dtype).eps
        return products.clamp(-edge, edge).arccos_().mul_(-self.angle_scale).to(self.dtype)

    def back(self, grad: Tensor, products: Tensor) -> Tensor:
        """∂ of the products, from that of the logits; it may overwrite `grad`."""
        if not self.angle_scale:
            return grad
        edge = 1 - 4 * torch.finfo(products.dtype).eps
        steep = (1 - products.square()).clamp_(min=torch.finfo(products.dtype).tiny).rsqrt_().mul_(self.angle_scale)
        return steep.masked_fill_(products.abs() > edge, 0.0).mul_(grad)


@dataclass
class Rows:
    """What each row's logits show: margin, gap to the largest other logit, entropy (N,) and most likely class (N,)."""

    margin: Tensor
    gap: Tensor
    entropy: Tensor
    predicted: Tensor


def chunk_rows(rows: int, weight: Tensor) -> int:
    """How many rows a chunk holds: a multiple of 128, or of 16 where fewer fit."""
    row = weight.shape[0] * weight.element_size()
    fit = max(SMALLEST, weight.numel() * weight.element_size() // 8) // row
    step = 128 if fit >= 128 else 16
    return max(1, min(rows, max(step, fit // step * step)))


def head_margin(
    features: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, *, ignore_index: int, scores: Scores, stats: bool
) -> tuple[Tensor, Tensor, Rows | None]:
    """features (N, D), weight (K, D) of one dtype -> m (N,), log Σ exp of the others (N,), and the rows' statistics."""
    m, others, *more = _HeadMargin.apply(features, weight, bias, labels, ignore_index, scores, stats)
    return m, others, Rows(*more) if stats else None


def head_loss(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    curve: Curve,
    *,
    row_weight: Tensor | None,
    target: Tensor | None,
    shift: float,
    mean: bool,
    ignore_index: int,
    scores: Scores,
    stats: bool,
) -> tuple[Tensor, Rows | None]:
    """The sum of row_weight · ℓ(m), or its mean; target replaces the label's logit, shift is subtracted from it."""
    graded = torch.is_grad_enabled()
    value, *more = _HeadLoss.apply(
        features, weight, bias, target, labels, row_weight, curve, shift, mean, ignore_index, scores, stats, graded
    )
    return value, Rows(*more) if stats else None


class _HeadMargin(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        ignore_index: int,
        scores: Scores,
        stats: bool,
    ) -> tuple[Tensor, ...]:
        parts = [
            _observe(scores.logits(products), labels[rows], ignore_index, stats)
            for rows, products in _products(features, weight, bias)
        ]
        m, top, total, *more = (torch.cat(part) for part in zip(*parts, strict=True))
        ctx.save_for_backward(features, weight, bias, labels, top, total)
        ctx.ignore_index, ctx.scores = ignore_index, scores
        ctx.mark_non_differentiable(*more)
        return m, top + total.log(), *more

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g_m: Tensor, g_others: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        features, weight, bias, labels, top, total = ctx.saved_tensors
        own, others = g_m.contiguous(), (g_others - g_m).contiguous()
        sums = _Gradients(features, weight, bias, ctx.needs_input_grad[:3])
        for rows, products in _products(features, weight, bias):
            z = out = ctx.scores.logits(products)  # the gradient overwrites the logits
            _write(z, labels[rows], top[rows], total[rows], own[rows], others[rows], ctx.ignore_index, out)
            sums.add(rows, ctx.scores.back(out, products))
        return *sums.all(), *[None] * 4


class _HeadLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor | None,
        labels: Tensor,
        row_weight: Tensor | None,
        curve: Curve,
        shift: float,
        mean: bool,
        ignore_index: int,
        scores: Scores,
        stats: bool,
        graded: bool,  # needs_input_grad is true under no_grad as well
    ) -> tuple[Tensor, ...]:
        kept, full = labels != ignore_index, full_precision(features.dtype)
        share = (kept if row_weight is None else torch.where(kept, row_weight, 0.0)).sum(dtype=full) if mean else None
        sums = _Gradients(features, weight, bias, ctx.needs_input_grad[:3] if graded else (False, False, False))
        values, pulls, more = [], [], []
        step = _fused_rows if _fusable(features, curve) else _plain_rows
        for rows, products in _products(features, weight, bias):
            z = out = scores.logits(products)  # the gradient overwrites the logits
            value, pull, seen = step(
                z,
                labels[rows],
                curve,
                None if row_weight is None else row_weight[rows],
                None if target is None else target[rows],
                shift,
                share,
                ignore_index,
                out if sums.wanted else None,
                stats,
            )
            values.append(value)
            if pull is not None:
                pulls.append(pull)
            more.append(seen)
            if sums.wanted:
                sums.add(rows, scores.back(out, products))
        ctx.written = [*sums.all(), torch.cat(pulls) if target is not None and pulls else None]
        seen_all = [torch.cat(part) for part in zip(*more, strict=True)]
        ctx.mark_non_differentiable(*seen_all)
        return torch.cat(values).sum(), *seen_all

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        kept, written = keeps_graph(), ctx.written
        if not kept:
            ctx.written = None
        return *(None if x is None else _scaled(x, g, in_place=not kept) for x in written), *[None] * 9


class _Gradients:
    """The gradients of features, weight and bias, added up over chunks of rows."""

    def __init__(self, features: Tensor, weight: Tensor, bias: Tensor | None, needed: tuple[bool, ...]) -> None:
        self.features, self.weight, self.bias = features, weight, bias
        self.x = torch.empty_like(features) if needed[0] else None
        self.w = torch.empty_like(weight, memory_format=torch.contiguous_format) if needed[1] else None
        self.b = torch.zeros_like(bias, dtype=full_precision(bias.dtype)) if needed[2] and bias is not None else None
        self.wanted, self.begun = any(needed), False

    def add(self, rows: slice, grad: Tensor) -> None:
        """grad: ∂ of the products of these rows (n, K)."""
        if self.x is not None:
            torch.mm(grad, self.weight, out=self.x[rows])
        if self.w is not None:
            if self.begun:
                torch.addmm(self.w, grad.t(), self.features[rows], out=self.w)
            else:
                torch.mm(grad.t(), self.features[rows], out=self.w)
        if self.b is not None:
            self.b += grad.sum(0, dtype=self.b.dtype)
        self.begun = True

    def all(self) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        if self.w is not None and not self.begun:
            self.w.zero_()
        return self.x, self.w, None if self.b is None or self.bias is None else self.b.to(self.bias.dtype)


def _products(features: Tensor, weight: Tensor, bias: Tensor | None) -> Iterator[tuple[slice, Tensor]]:
    """Slices of rows with x Wᵀ + b (n, K) of those rows, in one buffer that is used again."""
    step = chunk_rows(features.shape[0], weight)
    buffer = features.new_empty(step, weight.shape[0])
    for start in range(0, max(1, features.shape[0]), step):  # an empty batch is one empty chunk
        rows = slice(start, min(start + step, features.shape[0]))
        out = buffer[: rows.stop - start]
        with torch.autocast(features.device.type, enabled=False):
            if bias is None:
                torch.mm(features[rows], weight.t(), out=out)
            else:
                torch.addmm(bias, features[rows], weight.t(), out=out)
        yield rows, out


def _fusable(features: Tensor, curve: Curve) -> bool:
    if not takes(features) or features.dtype not in SHORT:
        return False
    from mohs.losses._kernels.curves import curve_of

    return curve_of(curve) is not None


def _fused_rows(
    z: Tensor,
    labels: Tensor,
    curve: Curve,
    row_weight: Tensor | None,
    target: Tensor | None,
    shift: float,
    share: Tensor | None,
    ignore_index: int,
    out: Tensor | None,
    stats: bool,
) -> tuple[Tensor, Tensor | None, tuple[Tensor, ...]]:
    from mohs.losses._kernels.curves import curve_of
    from mohs.losses._kernels.launch import launch_loss

    fused = curve_of(curve)
    assert fused is not None
    left = launch_loss(
        z,
        labels,
        fused,
        ignore_index=ignore_index,
        sample_weight=row_weight,
        target=target,
        shift=shift,
        mean=share is not None,
        denominator=share,
        grad=out,
        pull=target is not None and out is not None,
        stats=stats,
    )
    seen = (left.margin, left.gap, left.entropy, left.best.long()) if stats and left.best is not None else ()
    return left.value, left.pull, seen  # type: ignore[return-value]


def _plain_rows(
    z: Tensor,
    labels: Tensor,
    curve: Curve,
    row_weight: Tensor | None,
    target: Tensor | None,
    shift: float,
    share: Tensor | None,
    ignore_index: int,
    out: Tensor | None,
    stats: bool,
) -> tuple[Tensor, Tensor | None, tuple[Tensor, ...]]:
    m, top, total, *seen = _observe(z, labels, ignore_index, stats)
    m = m - shift if target is None else target.to(m) - top - total.log()
    kept = labels != ignore_index
    scale = torch.ones_like(m) if row_weight is None else row_weight.to(m)
    scale = torch.where(kept, scale, 0.0) / (1.0 if share is None else share)
    if out is None:
        return torch.where(kept, curve(m), 0.0) * scale, None, tuple(seen)
    with torch.enable_grad():
        m = m.detach().requires_grad_()
        value = curve(m)
        (pull,) = torch.autograd.grad(value.sum(), m)
    pull = torch.where(kept, pull * scale, 0.0)
    _write(z, labels, top, total, pull if target is None else torch.zeros_like(pull), -pull, ignore_index, out)
    return torch.where(kept, value.detach(), 0.0) * scale, pull, tuple(seen)


def _observe(z: Tensor, labels: Tensor, ignore_index: int, stats: bool) -> tuple[Tensor, ...]:
    """z (n, K), labels (n,) -> m, top, total, and with stats margin, gap, entropy and predicted class; (n,) each."""
    if takes(z) and not stats:
        from mohs.margin._triton import margin_forward

        return margin_forward(z, labels, ignore_index)
    index = torch.where(labels == ignore_index, 0, labels).unsqueeze(1)
    own = z.gather(1, index).to(full_precision(z.dtype))
    e = z.to(own.dtype, copy=True).scatter_(1, index, -INF)
    top, best = e.max(1, keepdim=True)
    best = torch.where(own > top, index, best).squeeze(1)
    gap = (own - top).squeeze(1)
    top.masked_fill_(top == -INF, 0.0)
    e.sub_(top)
    mean = torch.where(e == -INF, 0.0, e.exp() * e).sum(1) if stats else top.squeeze(1)
    total = e.exp_().sum(1)
    m = (own.squeeze(1) - top.squeeze(1) - total.log()).masked_fill_(own.squeeze(1) == INF, torch.nan)
    if not stats:
        return m, top.squeeze(1), total
    p, n = torch.sigmoid(m), torch.sigmoid(-m)
    entropy = torch.xlogy(p, p).neg() if m.dtype == torch.float64 else p * softplus(-m)
    entropy = torch.where(p == 0, 0.0, entropy) + torch.where(n == 0, 0.0, n * (softplus(m) + total.log() - mean / total))
    gone = labels == ignore_index
    seen = (x.masked_fill(gone, torch.nan) for x in (m, gap, entropy))
    return m, top.squeeze(1), total, *seen, best


def _write(
    z: Tensor, labels: Tensor, top: Tensor, total: Tensor, own: Tensor, others: Tensor, ignore_index: int, out: Tensor
) -> None:
    """∂z (n, K) into out: own at the label, others · softmax of the others elsewhere, 0 in ignored rows."""
    if takes(z):
        from mohs.margin._triton import write_gradient

        write_gradient(z.unsqueeze(2), labels, top, total, own, ignore_index, others=others, skip=True, out=out.unsqueeze(2))
        return
    index = torch.where(labels == ignore_index, 0, labels).unsqueeze(1)
    scale = (others / total.masked_fill(total == 0, 1.0)).unsqueeze(1)
    grad = (z.to(top.dtype) - top.unsqueeze(1)).exp_().mul_(scale).scatter_(1, index, own.unsqueeze(1))
    out.copy_(grad.masked_fill_((labels == ignore_index).unsqueeze(1), 0.0))


def _scaled(x: Tensor, factor: Tensor, *, in_place: bool) -> Tensor:
    if not in_place:
        return x * factor
    if takes(x):
        from mohs.margin._triton import scale_

        return scale_(x, factor)
    return x.mul_(factor)
