"""How decided a prediction is, in two numbers a row that share one backward pass.

    T = Σ of the squares of the τ largest probabilities      ∂T/∂z_j = 2 p_j (p_j [j among them] − T)
    H = −Σ p_j log p_j                                       ∂H/∂z_j = −p_j (z_j − m),   m = Σ p_k z_k

So a gradient is p_j times a straight line in z_j, and something more at the τ largest. H = log Σ exp z − m, its first term
read off at the largest p: log p = z − log Σ exp z. On a processor the one (N, K) array beside float32 logits is p, whose
memory the gradient takes over if the graph is not kept. The logits are kept for the backward pass: they must not be written
over before it. p and m are outputs too, so that second derivatives come out right; which classes are the τ largest is not
differentiated. H is a difference of numbers as large as the logits, and as exact as these: an offset common to all costs digits.
A NaN or infinite logit makes its row NaN: mask a class out with a large negative logit such as −1e4, not with −inf.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from mohs.losses._numerics.softmax_rows import softmax_rows, times_line
from mohs.losses._numerics.top_classes import top_classes
from mohs.margin import check_logits, full_precision, is_traced, log_probs


def certainty(logits: Tensor, *, tau: int) -> tuple[Tensor, Tensor]:
    """logits (N, K, d1, ...) -> T and H, (N · d1 · ...) each, in float32 at least."""
    squares, entropy, *_ = _Certainty.apply(_rows(logits, tau).to(full_precision(logits.dtype)), tau)
    return squares, entropy


def by_entropy(logits: Tensor, tau: int) -> tuple[Tensor, Tensor]:
    """logits (N, K, d1, ...) -> T and φ = H/log K, (N · d1 · ...) each."""
    squares, entropy = certainty(logits, tau=tau)
    return squares, entropy / math.log(logits.shape[1])


def by_variance(logits: Tensor, tau: int) -> tuple[Tensor, Tensor]:
    """logits (N, K, d1, ...) -> T and φ = K/(K − 1) (1 − Σ p²), (N · d1 · ...) each; by plain autograd."""
    p2 = (2 * log_probs(_rows(logits, tau))).exp()  # (N · d1 · ..., K)
    return p2.topk(tau, dim=1).values.sum(1), (1 - p2.sum(1)) * (logits.shape[1] / (logits.shape[1] - 1))


UNCERTAINTIES = {"entropy": by_entropy, "variance": by_variance}


def _rows(logits: Tensor, tau: int) -> Tensor:
    """logits (N, K, d1, ...) -> (N · d1 · ..., K), checked; (N, K) stays as it is."""
    check_logits(logits)
    if tau > logits.shape[1]:
        raise ValueError(
            f"tau={tau} asks for more probabilities than logits have classes ({logits.shape[1]}): take at most that many"
        )
    return logits if logits.dim() == 2 else logits.movedim(1, -1).flatten(0, -2)


def _last_use(saved: Tensor) -> bool:
    """Whether the backward pass under way frees what was saved, so that its memory may be taken for the gradient."""
    keeps_graph = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", None)  # private: it may go one day
    return not is_traced(saved) and keeps_graph is not None and not keeps_graph()


class _Certainty(torch.autograd.Function):
    """(logits (N, K), τ) -> T, H, p, m, the τ largest p and their classes."""

    generate_vmap_rule = True

    @staticmethod
    def forward(logits: Tensor, tau: int) -> tuple[Tensor, ...]:
        p, mean, maxima = softmax_rows(logits, tau)  # (N, K), (N, 1)
        highest, index = top_classes(p, tau, maxima)  # (N, τ)
        log_first = torch.xlogy(1.0, highest[:, :1])  # plain log hands even short vectors to MKL's threads: slow if busy
        entropy = (logits.gather(1, index[:, :1]) - log_first - mean).clamp_(min=0.0)  # under 0 by rounding only
        return highest.square().sum(1), entropy.squeeze(1), p, mean, highest, index

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int], output: tuple[Tensor, ...]) -> None:
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(output[5])
        ctx.save_for_backward(inputs[0], *output[2:])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor, None]:
        logits, p, mean, highest, index = ctx.saved_tensors
        g_squares, g_entropy, g_p, g_mean, g_highest, _ = grads
        pull = torch.zeros_like(highest) if g_squares is None else 2 * g_squares.unsqueeze(1) * highest  # on the τ largest p
        pull = (pull if g_highest is None else pull + g_highest) * highest  # (N, τ), and on their logits
        slope = torch.zeros_like(mean) if g_entropy is None else -g_entropy.unsqueeze(1)  # (N, 1)
        offset = -slope * mean - pull.sum(1, keepdim=True)
        if g_mean is not None:
            slope, offset = slope + g_mean, offset + g_mean * (1 - mean)
        if g_p is not None:
            offset = offset + g_p - (p * g_p).sum(1, keepdim=True)
        if torch.is_grad_enabled():  # a graph of this pass is made
            return times_line(p, logits, slope, offset, in_place=False).scatter_add(1, index, pull), None
        in_place = g_p is None and _last_use(p) and not any(is_traced(g) for g in grads if g is not None)
        return times_line(p.detach(), logits, slope, offset, in_place=in_place).scatter_add_(1, index, pull), None
