"""How decided a prediction is: two numbers per row that share one backward pass.

    T = Σ of the squares of the τ largest probabilities      ∂T/∂z_j = 2 p_j (p_j [j among them] − T)
    H = −Σ p_j log p_j                                       ∂H/∂z_j = −p_j (z_j − m),   m = Σ p_k z_k

So the gradient is p_j times a line in z_j, plus a term at the τ largest. H = log Σ exp z − m, and its first term is read
off at the largest p, since log p = z − log Σ exp z. On CPU the only (N, K) array besides float32 logits is p, whose memory
the gradient reuses unless the graph is retained. The logits are saved for the backward pass: do not modify them in place
before it. The choice of the τ largest classes is not differentiated. H is a difference of numbers as large as the logits, so
an offset common to all logits costs digits, except in `mean_over_rows`, which subtracts the maximum first.
A NaN or infinite logit makes its row NaN: mask a class with a large negative logit such as −1e4, not with −inf.

On CPU the passes run over blocks of rows that fit the cache, so that each operation reads what the last one wrote without
going to memory. On other devices all rows are taken at once. Tracing, `torch.func`, second and forward-mode derivatives take
the plain version.

For the mean over the rows of a function of T and H, `mean_over_rows` writes the gradient in the forward pass; the backward pass
scales it, unless the incoming gradient is 1. It takes e = 2^y with y = (z − max z)/log 2, as powers of 2 are faster than
torch.exp and torch.softmax, and divides numbers of a row by Σ e instead of all exponentials. It reads the logits only for y: the
product ey serves both H = log Σ e − log 2 · Σ ey/Σ e and the gradient, p times a line, which is offset · e + slope · ey. So two
arrays of a block have to stay in the cache, not three.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from mohs.losses._numerics.top_classes import TopClasses, column_count, column_maxima, top_classes
from mohs.margin import check_logits, full_precision, log_probs, readable
from mohs.margin._choose import Plain, apply_eagerly, eager, keeps_graph, needs_plain, plain_gradient

BLOCK_ENTRIES = 1 << 19  # entries of a block of rows, per thread
LOG_2 = math.log(2)
LOG2_E = 1 / LOG_2
MODERATE = 32.0  # for logits up to this size their rounding does not matter
GROUP_ENTRIES = 1 << 20  # minimum for a block in `mean_over_rows`: larger blocks need fewer small per-row operations
Slopes = tuple[Tensor, Tensor, Tensor]  # F, ∂F/∂T and ∂F/∂H, (N, 1) each
Strength = Callable[[Tensor, Tensor, int], Slopes]  # T and H, (N, 1) each, and K


def certainty(logits: Tensor, *, tau: int) -> tuple[Tensor, Tensor]:
    """logits (N, K, d1, ...) -> T and H, (N · d1 · ...) each, in float32 at least."""
    rows = _rows(logits, tau).to(full_precision(logits.dtype))
    return _Certainty.apply(rows, tau) if eager(rows) else plain_certainty(rows, tau)


def plain_certainty(rows: Tensor, tau: int) -> tuple[Tensor, Tensor]:
    """rows (N, K) of logits -> T and H, (N,) each, by ordinary differentiable operations."""
    log_p = log_probs(rows)
    p = log_p.exp()
    return p.topk(tau, dim=1).values.square().sum(1), -(p * log_p).sum(1)


def mean_over_rows(logits: Tensor, tau: int, strength: Strength, plain: Plain) -> Tensor | None:
    """The mean of F(T, H) over the rows of logits on CPU, as one autograd function; None if `plain` must be used.

    Args:
        logits: (N, K, d1, ...).
        tau: τ of T; 0 if F is a function of H alone, and T is therefore not computed.
        strength: F and its slopes.
        plain: logits -> the same mean by differentiable operations.
    """
    if not (logits.is_cpu and logits.requires_grad and torch.is_grad_enabled() and eager(logits)):
        return None
    rows = _rows(logits, tau).to(full_precision(logits.dtype))
    return apply_eagerly(_MeanOverRows, rows, tau, strength, plain)  # type: ignore[no-any-return]


def by_entropy(logits: Tensor, tau: int) -> tuple[Tensor, Tensor]:
    """logits (N, K, d1, ...) -> T and φ = H/log K, (N · d1 · ...) each."""
    squares, entropy = certainty(logits, tau=tau)
    return squares, entropy / math.log(logits.shape[1])


def by_variance(logits: Tensor, tau: int) -> tuple[Tensor, Tensor]:
    """logits (N, K, d1, ...) -> T and φ = K/(K − 1) (1 − Σ p²), (N · d1 · ...) each; by plain autograd."""
    p2 = (2 * log_probs(_rows(logits, tau))).exp()  # (N · d1 · ..., K)
    return p2.topk(tau, dim=1).values.sum(1), (1 - p2.sum(1)) * (logits.shape[1] / (logits.shape[1] - 1))


def above(logits: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    """logits (N, K, d1, ...) -> the sum of the squares of the probabilities of at least the threshold, the largest one in any
    case, and their number, (N · d1 · ...) each; by plain autograd. Which they are is not differentiated."""
    p = log_probs(_rows(logits, 1)).exp()  # (N · d1 · ..., K)
    kept = (p >= threshold) | (p == p.amax(1, keepdim=True))
    return (p.square() * kept).sum(1), kept.sum(1, dtype=p.dtype)


UNCERTAINTIES = {"entropy": by_entropy, "variance": by_variance}


def _rows(logits: Tensor, tau: int) -> Tensor:
    """logits (N, K, d1, ...) -> (N · d1 · ..., K), checked; (N, K) stays as it is."""
    check_logits(logits, classes=2)
    if tau > logits.shape[1]:
        raise ValueError(
            f"tau={tau} is more than the number of classes ({logits.shape[1]}) of the logits: use at most {logits.shape[1]}"
        )
    return logits if logits.dim() == 2 else logits.movedim(1, -1).flatten(0, -2)


class _Certainty(torch.autograd.Function):
    """(logits (N, K), τ) -> T and H."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, tau: int) -> tuple[Tensor, Tensor]:
        p, mean, maxima = softmax_rows(logits, tau)  # (N, K), (N, 1)
        highest, index = top_classes(p, tau, maxima)  # (N, τ)
        log_first = torch.xlogy(1.0, highest[:, :1])  # torch.log starts MKL threads even for short vectors
        entropy = (logits.gather(1, index[:, :1]) - log_first - mean).clamp_(min=0.0)  # below 0 by rounding error only
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(logits, p, mean, highest, index)
        ctx.tau = tau
        return highest.square().sum(1), entropy.squeeze(1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, None]:
        logits, p, mean, highest, index = ctx.saved_tensors
        some = next((g for g in grads if g is not None), None)
        if some is None:
            return None, None
        if needs_plain(some):
            both = torch.stack([torch.zeros_like(some) if g is None else g for g in grads])
            return plain_gradient(lambda z: torch.stack(plain_certainty(z, ctx.tau)), logits, both), None
        g_squares, g_entropy = grads
        pull = torch.zeros_like(highest) if g_squares is None else 2 * g_squares.unsqueeze(1) * highest.square()  # (N, τ)
        slope = torch.zeros_like(mean) if g_entropy is None else -g_entropy.unsqueeze(1)  # (N, 1)
        offset = -slope * mean - pull.sum(1, keepdim=True)
        return times_line(p, logits, slope, offset, in_place=not keeps_graph()).scatter_add_(1, index, pull), None


class _MeanOverRows(torch.autograd.Function):
    """(logits (N, K), τ, F, its mean by differentiable operations) -> the mean of F."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, tau: int, strength: Strength, plain: Plain) -> Tensor:
        (count, classes), given = logits.shape, logits.detach()
        blocks = min(count, -(-logits.numel() // max(GROUP_ENTRIES, BLOCK_ENTRIES * torch.get_num_threads()))) or 1
        rows = -(-count // blocks) or 1
        grad = torch.empty_like(given, memory_format=torch.contiguous_format)
        values, buffer = given.new_empty(count, 1), torch.empty_like(grad[:rows])
        search = TopClasses(grad[:rows], tau)
        for z, e, value in _split(rows, given, grad, values):
            ey = buffer[: len(z)]
            total, weighted = exponentials_into(e, ey, z)
            entropy = torch.xlogy(1.0, total)  # log Σ e; torch.log starts MKL threads even for short vectors
            share = total.reciprocal_()
            mean = weighted.mul_(share)  # Σ p y
            entropy.sub_(mean, alpha=LOG_2).clamp_(min=0.0)  # below 0 by rounding error only
            highest, index = search(e) if tau else (share, None)  # (rows, τ)
            squares = (highest * share).square_() if tau else share
            strengths, by_squares, by_entropy = strength(squares.sum(1, keepdim=True), entropy, classes)
            value.copy_(strengths)
            slope = by_entropy.mul_(share).mul_(-LOG_2 / max(1, count))
            offset = mean.mul_(slope).neg_()
            if index is not None:
                pull = squares.mul_(by_squares.mul_(2 / max(1, count)))
                offset.sub_(pull.sum(1, keepdim=True).mul_(share))
            e.mul_(offset).addcmul_(ey, slope)
            if index is not None:
                e.scatter_add_(1, index, pull)
        ctx.save_for_backward(logits, grad)
        ctx.plain = plain
        return values.mean()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        (g,), (logits, grad) = grads, ctx.saved_tensors
        if needs_plain(g):
            return plain_gradient(ctx.plain, logits, g), None, None, None
        if keeps_graph():
            return grad * g, None, None, None
        return grad if g.item() == 1 else grad.mul_(g), None, None, None


def softmax_rows(logits: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor | None]:
    """logits (N, K) -> p (N, K), m = Σ p z (N, 1) and the column maxima from which `top_classes` finds the `count` largest."""
    if not readable(logits):
        p = torch.softmax(logits, 1)
        return p, (p * logits).sum(1, keepdim=True), None
    p, means = torch.empty_like(logits, memory_format=torch.contiguous_format), logits.new_empty(len(logits), 1)
    width = column_count(logits, count)
    maxima = logits.new_empty(len(logits), width if width < logits.shape[1] else 0)
    softmax_into(p, logits, means, maxima)
    return p, means, maxima


def softmax_into(p: Tensor, logits: Tensor, means: Tensor, maxima: Tensor) -> None:
    """Write p (N, K), m (N, 1) and the column maxima (N, width), block by block; width 0: none."""
    for z, block, mean, columns in _split(_block_rows(logits), logits, p, means, maxima):
        torch.softmax(z, 1, out=block)
        mean_logit(block, z, mean)
        if columns.shape[1]:
            column_maxima(block, columns)


def exponentials_into(e: Tensor, ey: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
    """Write e = 2^y, y = (z − max z)/log 2, and the product ey, (N, K) each; return Σ e and Σ ey, (N, 1) each.

    y is one operation for moderate logits. The rounding of max z/log 2 is the same in all of a row, so it cancels in p and H.
    """
    top = logits.amax(1, keepdim=True)
    if len(top) and torch.linalg.vector_norm(top, math.inf).item() > MODERATE:
        torch.sub(logits, top, out=ey).mul_(LOG2_E)
    else:
        torch.add(top * -LOG2_E, logits, alpha=LOG2_E, out=ey)
    torch.exp2(ey, out=e)
    total, weighted = e.sum(1, keepdim=True), ey.mul_(e).sum(1, keepdim=True)
    if weighted.isnan().any():  # a mask as low as the dtype's minimum overflows in y, but not in z − max z
        weighted = torch.sub(logits, top, out=ey).mul_(e).mul_(LOG2_E).sum(1, keepdim=True)
    return total, weighted


def mean_logit(p: Tensor, logits: Tensor, out: Tensor) -> None:
    """Σ p z of each row into out (N, 1): as a batched product, unless reduced matmul precision is enabled; then as a sum.

    Operations with `out` are exempt from autocast.
    """
    if torch.backends.mkldnn.matmul.fp32_precision in ("none", "ieee"):  # type: ignore[attr-defined]
        torch.bmm(p.unsqueeze(1), logits.unsqueeze(1).transpose(1, 2), out=out.unsqueeze(2))
    else:
        torch.sum(p * logits, 1, keepdim=True, out=out)


def times_line(p: Tensor, logits: Tensor, slope: Tensor, offset: Tensor, *, in_place: bool) -> Tensor:
    """p (slope · z + offset), (N, K); slope (N, 1), offset (N, 1) or (N, K); in_place: p may be overwritten."""
    if not in_place:
        return p * (slope * logits + offset)
    if not readable(logits):
        return p.mul_(torch.addcmul(offset, slope, logits))
    times_line_(p, logits, slope, offset, torch.empty_like(p[: _block_rows(logits)]))
    return p


def times_line_(p: Tensor, logits: Tensor, slope: Tensor, offset: Tensor, buffer: Tensor) -> None:
    """`times_line` written over p, block by block; buffer: memory for the rows of a block."""
    for block, z, by, plus in _split(_block_rows(logits), p, logits, slope, offset):
        block.mul_(torch.mul(z, by, out=buffer if len(z) == len(buffer) else buffer[: len(z)]).add_(plus))


def _split(rows: int, *tensors: Tensor) -> Iterable[tuple[Tensor, ...]]:
    """Blocks of `rows` rows of all tensors."""
    if len(tensors[0]) <= rows:
        return [tensors]
    return zip(*(torch.split(tensor, rows) for tensor in tensors), strict=True)


def _block_rows(logits: Tensor) -> int:
    return max(1, BLOCK_ENTRIES * torch.get_num_threads() // logits.shape[1])
