"""How decided a prediction is, in two numbers a row that share one backward pass.

    T = Σ of the squares of the τ largest probabilities      ∂T/∂z_j = 2 p_j (p_j [j among them] − T)
    H = −Σ p_j log p_j                                       ∂H/∂z_j = −u_j,  u_j = p_j (z_j − Σ p_k z_k)

u gives H as well: at the class with the largest p it is p (log p + H). So (N, K) arrays are p and u, whose memory the
gradient takes over if the graph is not kept: two, where cross-entropy has three and plain autograd six. p and u are
outputs too, so that second derivatives come out right; which classes are the τ largest is not differentiated.
H is as exact as the largest logit's last digit.
A NaN or infinite logit makes its row NaN: mask a class out with a large negative logit such as −1e4, not with −inf.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from mohs.losses.top_classes import top_classes
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
    return logits.movedim(1, -1).flatten(0, -2)


def _last_use(saved: Tensor) -> bool:
    """Whether the backward pass under way frees what was saved, so that its memory may be taken for the gradient."""
    keeps_graph = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", None)  # private: it may go one day
    return not is_traced(saved) and keeps_graph is not None and not keeps_graph()


class _Certainty(torch.autograd.Function):
    """(logits (N, K), τ) -> T, H, p, u, the τ largest p and their classes."""

    generate_vmap_rule = True

    @staticmethod
    def forward(logits: Tensor, tau: int) -> tuple[Tensor, ...]:
        p = torch.softmax(logits, 1)  # (N, K)
        highest, index = top_classes(p, tau)  # (N, τ)
        u = torch.ops.aten._softmax_backward_data(logits, p, 1, p.dtype)  # in one pass, the row sums included
        first = highest[:, :1]
        log_first = torch.xlogy(1.0, first)  # plain log hands even short vectors to MKL's threads: slow on a busy machine
        entropy = (u.gather(1, index[:, :1].contiguous()) / first - log_first).clamp_(min=0.0)  # under 0 by rounding only
        return highest.square().sum(1), entropy.squeeze(1), p, u, highest, index

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int], output: tuple[Tensor, ...]) -> None:
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(output[5])
        ctx.save_for_backward(output[0], *output[2:])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor, None]:
        squares, p, u, highest, index = ctx.saved_tensors
        g_squares, g_entropy, g_p, g_u, g_highest, _ = grads
        scale = torch.zeros_like(squares) if g_entropy is None else -g_entropy
        take_u = g_p is None and g_u is None and _last_use(u)
        grad = u.mul_(scale.unsqueeze(1)) if take_u else u * scale.unsqueeze(1)  # (N, K)
        if g_squares is not None or g_highest is not None:
            pull = 0.0 if g_squares is None else 2 * g_squares.unsqueeze(1) * highest  # on the τ largest p
            pull = (pull if g_highest is None else pull + g_highest) * highest  # (N, τ), and on their logits
            grad = grad.addcmul_(p, -pull.sum(1, keepdim=True)).scatter_add_(1, index, pull)
        if g_p is not None:
            grad = grad + p * (g_p - (p * g_p).sum(1, keepdim=True))
        if g_u is not None:
            g_u = g_u - (p * g_u).sum(1, keepdim=True)
            grad = grad + (u + p) * g_u - p * (u * g_u).sum(1, keepdim=True)
        return grad, None
