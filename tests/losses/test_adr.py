"""ADR and the entropy penalty: the fast path against a plain one, the options, and the edges."""

from __future__ import annotations

import math
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mohs.losses._numerics import certainty as certainty_module
from mohs.losses._numerics.certainty import certainty
from mohs.losses._numerics.top_classes import top_classes
from mohs.losses.adr import ADR, EntropyPenalty, adr, entropy_penalty

OPTIONS = [
    {},
    {"tau": 1},
    {"phi": "variance"},
    {"scope": "batch"},
    {"normalizer": "none"},
    {"normalizer": "printed"},
    {"normalizer": "printed", "scope": "batch"},
    {"threshold": 0.1},
    {"threshold": 0.9, "normalizer": "printed"},
    {"detach_phi": True},
    {"phi": "variance", "scope": "batch", "normalizer": "none", "detach_phi": True},
]


def draw(*shape: int, seed: int = 0, scale: float = 2.0, dtype: torch.dtype = torch.float64) -> Tensor:
    return scale * torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def plain(
    logits: Tensor,
    *,
    tau: int = 3,
    phi: str = "entropy",
    scope: str = "sample",
    normalizer: str = "root",
    detach_phi=False,
    threshold=None,
):
    """The formula, one example at a time, by autograd."""
    classes = logits.shape[1]
    rows = [row.softmax(0) for row in logits]
    uncertainties = [
        -(p * p.log()).sum() / math.log(classes) if phi == "entropy" else (1 - (p * p).sum()) * classes / (classes - 1)
        for p in rows
    ]
    if scope == "batch":
        uncertainties = [sum(uncertainties) / len(rows)] * len(rows)
    total = 0.0
    for p, u in zip(rows, uncertainties, strict=True):
        u = u.detach() if detach_phi else u
        ranked = sorted(p, reverse=True)
        kept = ranked[:tau] if threshold is None else [ranked[0], *(v for v in ranked[1:] if v >= threshold)]
        squares = sum(v * v for v in kept)
        factor = {"root": (2 * math.pi * u) ** 0.5, "printed": (2 * math.pi) ** 0.5 * u, "none": 1.0}[normalizer]
        total = total + factor ** (-len(kept)) * torch.exp(-squares / (2 * u))
    return total / len(rows)


def gradient(f, logits: Tensor) -> Tensor:
    leaf = logits.clone().requires_grad_()
    f(leaf).backward()
    return leaf.grad


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("shape", [(6, 5), (3, 401)], ids=str)
def test_value_and_gradient_match_a_plain_loop(options, shape):
    logits = draw(*shape)
    torch.testing.assert_close(adr(logits, **options), plain(logits, **options))
    torch.testing.assert_close(gradient(lambda z: adr(z, **options), logits), gradient(lambda z: plain(z, **options), logits))


@pytest.mark.parametrize("options", [*OPTIONS, {"tau": 4}, {"tau": 5}], ids=str)
@pytest.mark.parametrize("classes", [384, 1000])
def test_the_fast_search_in_float32_matches_a_float64_loop(options, classes):
    logits = draw(3, classes, dtype=torch.float32)
    exact = logits.double()
    torch.testing.assert_close(adr(logits, **options).double(), plain(exact, **options), rtol=1e-5, atol=0)
    ours, theirs = gradient(lambda z: adr(z, **options), logits), gradient(lambda z: plain(z, **options), exact)
    torch.testing.assert_close(ours.double(), theirs, rtol=1e-4, atol=1e-6 * theirs.abs().max().item())


@pytest.mark.parametrize("f", [adr, lambda z: adr(z, detach_phi=True), lambda z: adr(z, scope="batch"), entropy_penalty])
def test_a_kept_graph_gives_the_same_gradient_again(f):
    leaf = draw(5, 400, dtype=torch.float32).requires_grad_()
    value = f(leaf)
    [once] = torch.autograd.grad(value, leaf, retain_graph=True)
    kept = once.clone()
    [with_graph] = torch.autograd.grad(value, leaf, create_graph=True)
    [twice] = torch.autograd.grad(value, leaf, retain_graph=True)
    [last] = torch.autograd.grad(value, leaf)
    assert torch.equal(once, kept)  # later passes leave it alone
    for again in (twice, last):
        assert torch.equal(again, once)
    torch.testing.assert_close(with_graph, once)  # by the plain version: equal up to rounding
    with pytest.raises(RuntimeError, match="second time"):
        value.backward()


@pytest.mark.parametrize("f", [adr, entropy_penalty])
def test_the_gradient_takes_over_memory_only_when_the_graph_is_freed(f):
    saved = []

    def keep(tensor: Tensor) -> Tensor:
        saved.append(tensor.data_ptr())
        return tensor

    leaf = draw(5, 400, dtype=torch.float32).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        value = f(leaf)
    [kept] = torch.autograd.grad(value, leaf, retain_graph=True)
    assert kept.data_ptr() not in saved
    [last] = torch.autograd.grad(value, leaf)
    assert last.data_ptr() in saved
    assert torch.equal(kept, last)


def test_gradients_add_up_over_batches():
    leaf = draw(5, 400, dtype=torch.float32).requires_grad_()
    adr(leaf).backward()
    once = leaf.grad.clone()
    entropy_penalty(leaf).backward()
    torch.testing.assert_close(leaf.grad, once + gradient(entropy_penalty, leaf.detach()))


@pytest.mark.parametrize("f", [adr, lambda z: adr(z, normalizer="printed"), lambda z: adr(z, normalizer="none"), entropy_penalty])
def test_the_gradient_is_scaled_by_the_incoming_one(f):
    logits = draw(5, 400, dtype=torch.float32)
    torch.testing.assert_close(gradient(lambda z: -0.1 * f(z), logits), -0.1 * gradient(f, logits))


@pytest.mark.parametrize("f", [adr, entropy_penalty])
def test_an_empty_batch_has_an_empty_gradient(f):
    assert gradient(f, torch.zeros(0, 400)).shape == (0, 400)


@pytest.mark.parametrize("entries", [1, 3000, 9000])
def test_groups_of_blocks_give_the_same_result(entries, monkeypatch):
    logits = draw(10, 1000, dtype=torch.float32)
    whole = gradient(adr, logits)
    monkeypatch.setattr(certainty_module, "GROUP_ENTRIES", entries)
    monkeypatch.setattr(certainty_module, "BLOCK_ENTRIES", 2000)
    torch.testing.assert_close(gradient(adr, logits), whole)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_a_gradient_for_each_batch_by_vmap():
    batches = draw(3, 5, 400, dtype=torch.float32)
    by_hand = torch.stack([gradient(adr, batch) for batch in batches])
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(adr))(batches), by_hand)


@pytest.mark.parametrize("entries", [1, 2000, 4000, 1 << 19], ids=str)
@pytest.mark.parametrize("precision", ["highest", "medium"])
def test_blocks_of_rows_give_the_same_result(entries, precision, monkeypatch):
    logits = draw(9, 1000, dtype=torch.float32) + 50.0
    value, slopes = torch.func.grad_and_value(adr)(logits)[::-1]  # traced: all rows at once
    monkeypatch.setattr(certainty_module, "BLOCK_ENTRIES", entries)
    torch.set_float32_matmul_precision(precision)
    try:
        leaf = logits.clone().requires_grad_()
        total = adr(leaf)
        torch.testing.assert_close(total, value)
        for kept in (True, False):  # the second backward pass may write over what the first had to keep
            (slope,) = torch.autograd.grad(total, leaf, retain_graph=kept)
            torch.testing.assert_close(slope, slopes, atol=1e-9, rtol=1e-4)
    finally:
        torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("loss", [adr, entropy_penalty])
def test_autocast_and_other_precisions_of_products_change_nothing(loss):
    logits = (draw(64, 1000, scale=3.0, dtype=torch.float32) + 20).requires_grad_()
    value = loss(logits)
    (slopes,) = torch.autograd.grad(value, logits)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = loss(logits)
    assert torch.equal(half, value)
    assert torch.equal(torch.autograd.grad(half, logits)[0], slopes)
    torch.backends.mkldnn.matmul.fp32_precision = "bf16"
    try:
        torch.testing.assert_close(loss(logits), value)
    finally:
        torch.backends.mkldnn.matmul.fp32_precision = "none"


def test_a_graph_of_the_gradient_and_gradients_in_batches():
    logits = draw(3, 5, scale=1.0).requires_grad_()
    (slope,) = torch.autograd.grad(adr(logits), logits, create_graph=True, retain_graph=False)
    assert slope.requires_grad
    (slope,) = torch.autograd.grad(adr(logits), logits)
    assert not slope.requires_grad
    pair = torch.stack(certainty(logits, tau=3))  # (2, 3)
    by_hand = torch.stack([torch.autograd.grad(pair[i, j], logits, retain_graph=True)[0] for i in range(2) for j in range(3)])
    (batched,) = torch.autograd.grad(pair, logits, torch.eye(6, dtype=pair.dtype).view(6, 2, 3), is_grads_batched=True)
    torch.testing.assert_close(batched, by_hand)


@pytest.mark.parametrize("options", [o for o in [*OPTIONS, {"tau": 5}] if not o.get("detach_phi")], ids=str)
def test_gradcheck(options):
    assert torch.autograd.gradcheck(lambda z: adr(z, **options), draw(3, 5, scale=1.0).requires_grad_())


@pytest.mark.parametrize("tau", [1, 2, 5])
def test_second_derivatives_of_the_two_numbers(tau):
    assert torch.autograd.gradgradcheck(lambda z: torch.stack(certainty(z, tau=tau)), draw(3, 5, scale=1.0).requires_grad_())


def test_second_derivative_of_adr_is_that_of_the_plain_loop():
    logits = draw(2, 4, scale=1.0)
    ours, theirs = (torch.autograd.functional.hessian(f, logits) for f in (adr, plain))
    torch.testing.assert_close(ours, theirs)


@settings(deadline=None, derandomize=True, max_examples=40)
@given(st.integers(2, 700), st.integers(1, 12), st.integers(0, 10**6), st.booleans())
def test_top_classes_hold_the_largest_values(classes, count, seed, coarse):
    count = min(count, classes)
    p = torch.rand(4, classes, generator=torch.Generator().manual_seed(seed))
    p = (p * 5).round() / 5 if coarse else p  # coarse: many ties
    p = p.double() if seed % 4 == 0 else p
    values, found = top_classes(p, count)
    assert all(len(set(row)) == count for row in found.tolist())
    assert torch.equal(values, p.topk(count, dim=1).values)
    assert torch.equal(values, p.gather(1, found))


@pytest.mark.parametrize(("rows", "classes"), [(5, 127), (0, 384), (5, 385), (900, 1000), (5, 4999), (120, 32000)])
def test_top_classes_by_columns_at_every_width_and_in_pieces(rows, classes):
    p = draw(rows, classes, dtype=torch.float32).softmax(1)
    assert torch.equal(top_classes(p, 3)[1], p.topk(3, dim=1).indices)
    p[:, -1] = p[:, -2] = 1.0  # the answer among the entries left over
    assert all(set(found) == {classes - 1, classes - 2} for found in top_classes(p, 2)[1].tolist())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("options", [*OPTIONS, {"tau": 10}], ids=str)
def test_finite_at_one_hot_and_uniform(dtype, options):
    one_hot = 2e4 * torch.eye(10, dtype=dtype) - 1e4
    for logits in (one_hot, torch.zeros(4, 10, dtype=dtype), torch.cat([one_hot, 0 * one_hot])):
        leaf = logits.clone().requires_grad_()
        value = adr(leaf, **options)
        value.backward()
        assert value.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        assert value.isfinite()
        assert leaf.grad.isfinite().all()
    assert adr(one_hot, **options) == 0


def test_half_precision_is_computed_in_float32():
    logits = draw(8, 50).half()
    assert adr(logits) == adr(logits.float())
    assert entropy_penalty(logits) == entropy_penalty(logits.float())


def test_classes_may_be_followed_by_indices():
    logits = draw(2, 5, 3, 4)
    rows = logits.permute(0, 2, 3, 1).reshape(-1, 5)
    assert adr(logits) == adr(rows)
    assert adr(logits, scope="batch", phi="variance") == adr(rows, scope="batch", phi="variance")
    assert entropy_penalty(logits) == entropy_penalty(rows)
    torch.testing.assert_close(gradient(adr, logits), gradient(adr, rows).view(2, 3, 4, 5).permute(0, 3, 1, 2))


def test_a_shift_of_the_logits_changes_nothing():
    logits = draw(6, 200, dtype=torch.float32)
    torch.testing.assert_close(adr(logits + 64), adr(logits), rtol=1e-4, atol=0)
    torch.testing.assert_close(entropy_penalty(logits - 64), entropy_penalty(logits), rtol=1e-4, atol=0)


def test_a_nan_or_infinite_logit_shows():
    for bad in (torch.nan, torch.inf):
        logits = torch.zeros(3, 400)
        logits[1, 7] = bad
        assert adr(logits).isnan()
    assert adr(torch.zeros(0, 4)).isnan()  # as every mean over nothing


@pytest.mark.parametrize("f", [adr, entropy_penalty])
@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_a_class_masked_by_the_lowest_number_has_no_part(f, offset):
    logits = draw(5, 400, dtype=torch.float32) + offset
    logits[2, 7] = torch.finfo(torch.float32).min
    value, slopes = f(logits.double()), gradient(f, logits.double())
    torch.testing.assert_close(f(logits.clone().requires_grad_()).double(), value, rtol=1e-6, atol=0)
    torch.testing.assert_close(gradient(f, logits).double(), slopes, rtol=1e-5, atol=1e-6 * slopes.abs().max().item())


def test_entropy_penalty_by_hand():
    logits = draw(5, 7)
    p = logits.softmax(1)
    entropy = -(p * p.log()).sum(1)
    torch.testing.assert_close(entropy_penalty(logits), entropy.mean())
    torch.testing.assert_close(gradient(entropy_penalty, logits), -p * (p.log() + entropy[:, None]) / 5)
    assert entropy_penalty(torch.tensor([[1e4, -1e4, 0.0]])) == 0


@pytest.mark.parametrize("f", [adr, lambda z: adr(z, phi="variance", scope="batch"), entropy_penalty])
def test_compiles_without_a_graph_break(f):
    logits = draw(4, 400, dtype=torch.float32)
    torch.compiler.reset()
    torch.testing.assert_close(gradient(torch.compile(f, fullgraph=True, backend="eager"), logits), gradient(f, logits))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_module_equals_the_function_and_can_be_rebuilt(options):
    logits = draw(4, 6)
    module = ADR(**options)
    for twin in (module, eval(repr(module)), pickle.loads(pickle.dumps(module))):
        assert twin(logits) == adr(logits, **options)
    for twin in (EntropyPenalty(), eval(repr(EntropyPenalty()))):
        assert twin(logits) == entropy_penalty(logits)
    assert ADR.takes == EntropyPenalty.takes == ("logits",)


@pytest.mark.parametrize(
    "options",
    [{"tau": 0}, {"tau": -1}, {"tau": 1.5}, {"phi": "mean"}, {"scope": "epoch"}, {"normalizer": "bare"}, {"threshold": 1.0}],
    ids=str,
)
def test_a_wrong_setting_is_named(options):
    [name] = options
    with pytest.raises(ValueError, match=name):
        ADR(**options)
    with pytest.raises(ValueError, match=name):
        adr(torch.zeros(2, 5), **options)


def test_wrong_logits_are_named():
    for phi in ("entropy", "variance"):
        with pytest.raises(ValueError, match="tau=4"):
            adr(torch.zeros(2, 3), tau=4, phi=phi)
    for bad in (torch.zeros(3, 1), torch.zeros(3), torch.zeros(3, 4, dtype=torch.int64)):
        with pytest.raises(ValueError, match="logits"):
            adr(bad, tau=1)
        with pytest.raises(ValueError, match="logits"):
            entropy_penalty(bad)


def test_a_threshold_and_the_batch_keep_float64() -> None:
    logits = torch.randn(5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    p = torch.softmax(logits, 1)
    phi = (-(p * p.log()).sum(1) / math.log(4)).mean()
    kept = (p >= 0.2) | (p == p.amax(1, keepdim=True))
    expected = ((2 * math.pi * phi) ** (-kept.sum(1).double() / 2) * torch.exp(-(p.square() * kept).sum(1) / (2 * phi))).mean()
    torch.testing.assert_close(ADR(threshold=0.2, scope="batch")(logits), expected, rtol=1e-12, atol=0)
