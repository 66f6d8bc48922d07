"""Early-learning regularization: the formulas of its docstring, its targets by a loop, and less memorized in training."""

from __future__ import annotations

import copy
import math
import pickle

import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import mohs
from mohs.losses.early_learning import FLOOR, EarlyLearning, clamped_probs, early_learning


def drawn(n: int = 6, k: int = 4, seed: int = 0) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, k, generator=g, dtype=torch.float64)
    return logits, 0.9 * torch.softmax(2 * torch.randn(n, k, generator=g, dtype=torch.float64), 1)


def test_value_matches_a_loop() -> None:
    logits, targets = drawn()
    values = []
    for z, t in zip(logits.tolist(), targets.tolist(), strict=True):
        e = [math.exp(v) for v in z]
        values.append(math.log(1 - sum(a / sum(e) * b for a, b in zip(e, t, strict=True))))
    assert float(early_learning(logits, targets)) == pytest.approx(sum(values) / len(values), rel=1e-12)


def test_gradient_matches_the_docstring() -> None:
    logits, targets = drawn()
    z, t = logits.clone().requires_grad_(), targets.clone().requires_grad_()
    early_learning(z, t).backward()
    p = torch.softmax(logits, 1)
    inner = (p * targets).sum(1, keepdim=True)
    expected = p * (inner - targets) / (1 - inner) / len(logits)
    torch.testing.assert_close(z.grad, expected)
    assert t.grad is None
    assert torch.autograd.gradcheck(early_learning, (logits.requires_grad_(), targets))


def test_offsets_the_gradient_of_cross_entropy_on_a_wrong_label() -> None:
    """The target is sure of class 0, the label is 1: with the term, cross-entropy's step toward the label nearly ends."""
    logits, label = torch.tensor([[4.0, 0.0, 0.0]]), torch.tensor([1])
    target = torch.tensor([[0.97, 0.015, 0.015]])
    steps = []
    for weight in (0.0, 3.0):
        z = logits.clone().requires_grad_()
        (nn.functional.cross_entropy(z, label) + weight * early_learning(z, target)).backward()
        assert z.grad is not None
        steps.append(-z.grad[0])
    assert steps[0][0] < -0.9  # away from class 0
    assert steps[1][0] > 0.5 * steps[0][0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_clamped_and_finite_at_extremes(dtype: torch.dtype) -> None:
    logits = torch.tensor([[1e4, -1e4, 0.0], [-1e4, 1e4, 1e4], [0.0, 0.0, 0.0]]).to(dtype)
    p = clamped_probs(logits)
    assert p.dtype == torch.float32
    assert float(p.min()) == pytest.approx(FLOOR)
    assert float(p.max()) == pytest.approx(1 - FLOOR)
    z = logits.clone().requires_grad_()
    value = early_learning(z, torch.eye(3))  # sure targets that the first row agrees with
    value.backward()
    assert value.isfinite()
    assert z.grad is not None
    assert z.grad.isfinite().all()
    assert float(early_learning(logits[:1], torch.eye(3)[:1])) >= math.log(FLOOR) - 1e-3


def test_targets_match_running_means_in_a_loop() -> None:
    term = EarlyLearning(7, 3, momentum=0.6)
    expected = [[0.0] * 3 for _ in range(7)]
    g = torch.Generator().manual_seed(0)
    for _ in range(4):
        for ids in torch.randperm(7, generator=g)[:6].split(2):
            logits = 3 * torch.randn(2, 3, generator=g)
            before = copy.deepcopy(expected)
            for i, z in zip(ids.tolist(), logits.tolist(), strict=True):
                e = [math.exp(v) for v in z]
                p = [min(max(v / sum(e), FLOOR), 1 - FLOOR) for v in e]
                expected[i] = [0.6 * t + 0.4 * v / sum(p) for t, v in zip(before[i], p, strict=True)]
            value = term(logits, ids)
            torch.testing.assert_close(value, early_learning(logits, torch.tensor([expected[i] for i in ids.tolist()])))
        term.end_epoch()
        torch.testing.assert_close(term.targets, torch.tensor(expected))


def test_in_eval_mode_targets_stay() -> None:
    term = EarlyLearning(4, 3)
    term(torch.randn(4, 3), torch.arange(4))
    before = term.targets.clone()
    term.eval()
    term(torch.randn(4, 3), torch.arange(4))
    assert torch.equal(term.targets, before)


def test_state_round_trips() -> None:
    first, second = EarlyLearning(5, 3), EarlyLearning(5, 3)
    g = torch.Generator().manual_seed(0)
    first(torch.randn(5, 3, generator=g), torch.arange(5))
    assert set(first.state_dict()) == {"targets"}
    second.load_state_dict(first.state_dict())
    logits = torch.randn(5, 3, generator=g)
    for other in (second, copy.deepcopy(first), pickle.loads(pickle.dumps(first))):
        torch.testing.assert_close(other(logits, torch.arange(5)), copy.deepcopy(first)(logits, torch.arange(5)))
    assert repr(first) == "EarlyLearning(num_examples=5, num_classes=3, momentum=0.7)"


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((0, 3), {}, "num_examples must be an integer of at least 1, got 0"),
        ((5, 1), {}, "num_classes must be an integer of at least 2, got 1"),
        ((5, 3), {"momentum": 1.5}, "momentum must be between 0 and 1, got 1.5"),
    ],
)
def test_bad_settings(arguments: tuple[int, int], options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EarlyLearning(*arguments, **options)


def test_bad_shapes() -> None:
    with pytest.raises(ValueError, match=r"logits and targets must both be \(N, K\), got \(2, 3\) and \(3, 3\)"):
        early_learning(torch.zeros(2, 3), torch.zeros(3, 3))


def memorized(weight: float) -> tuple[float, float]:
    """Share of wrong digits labels that a network ends up with, trained with this weight, and its held-out accuracy."""
    torch.manual_seed(0)
    pixels, digits = load_digits(return_X_y=True)
    x, clean = torch.tensor(pixels, dtype=torch.float32) / 16, torch.tensor(digits)
    wrong = torch.rand(1200) < 0.4
    y = torch.where(wrong, (clean[:1200] + torch.randint(1, 10, (1200,))) % 10, clean[:1200])
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    objective = mohs.Objective(mohs.CrossEntropyLoss(), [(weight, EarlyLearning(1200, 10))] if weight else [])
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    for _ in range(60):
        for ids in torch.randperm(1200).split(64):
            optimizer.zero_grad()
            objective(net(x[ids]), y[ids], ids=ids).backward()
            optimizer.step()
    with torch.no_grad():
        guess = net(x).argmax(1)
    return float((guess[:1200] == y)[wrong].float().mean()), float((guess[1200:] == clean[1200:]).float().mean())


def test_fewer_wrong_labels_are_memorized() -> None:
    plain, with_term = memorized(0.0), memorized(3.0)
    assert with_term[0] < 0.5 * plain[0]
    assert with_term[1] > plain[1] + 0.05


@pytest.mark.parametrize(
    ("classes", "ids", "message"),
    [
        (4, [0, 1], r"logits must have shape \(N, 3\) and ids \(N,\), got \(2, 4\) and \(2,\)"),
        (3, [0, 1, 2], r"got \(2, 3\) and \(3,\)"),
        (3, [0, 5], r"ids must lie in 0..4, as mohs.WithIds numbers 5 training examples, got 0 to 5"),
        (3, [-1, 0], "got -1 to 0"),
    ],
)
def test_inputs_that_do_not_fit_are_named(classes: int, ids: list[int], message: str) -> None:
    early = EarlyLearning(5, 3)
    for mode in (True, False):  # in evaluation mode, an id of −1 would be the last example
        with pytest.raises(ValueError, match=message):
            early.train(mode)(torch.zeros(2, classes), torch.tensor(ids))


def test_ids_are_integers_of_any_size() -> None:
    small, large = EarlyLearning(5, 3), EarlyLearning(5, 3)
    logits, ids = torch.randn(4, 3), torch.tensor([4, 0, 2, 1])
    assert torch.equal(small(logits, ids.int()), large(logits, ids))
    assert torch.equal(small.targets, large.targets)
    with pytest.raises(ValueError, match=r"ids must be integers, got torch\.float32"):
        small(logits, ids.float())
