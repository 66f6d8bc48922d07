"""Self-paced learning: the weights, and the threshold that follows the batches."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import mohs
from mohs.losses.curriculum import SelfPacedLoss, next_threshold, self_paced_loss, self_paced_weights

KINDS = ["hard", "linear"]


def batch(n: int = 12, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return 2 * torch.randn(n, 4, generator=generator), torch.randint(4, (n,), generator=generator)


def losses(logits: Tensor, labels: Tensor) -> Tensor:
    return cross_entropy(logits, labels, reduction="none")


def test_weights() -> None:
    ce = torch.tensor([0.0, 1.0, 2.0, 3.0], requires_grad=True)
    assert self_paced_weights(ce, 2.0, "hard").tolist() == [1.0, 1.0, 0.0, 0.0]
    assert self_paced_weights(ce, torch.tensor(2.0), "linear").tolist() == [1.0, 0.5, 0.0, 0.0]
    for kind in KINDS:
        assert self_paced_weights(ce, torch.inf, kind).tolist() == [1.0] * 4
        assert not self_paced_weights(ce, 2.0, kind).requires_grad
    assert self_paced_weights(ce, 0.0, "hard").tolist() == [0.0] * 4
    assert self_paced_weights(ce, 0.0, "linear").tolist() == [1.0, 0.0, 0.0, 0.0]
    with pytest.raises(ValueError, match="kind must be one of hard, linear, got 'soft'"):
        self_paced_weights(ce, 2.0, "soft")


@pytest.mark.parametrize("kind", KINDS)
def test_the_mean_is_over_all_examples_and_the_weight_is_constant(kind: str) -> None:
    logits, labels = batch()
    logits.requires_grad_()
    ce = losses(logits, labels)
    v = self_paced_weights(ce, 1.0, kind)
    assert 0 < (v > 0).sum() < 12
    value = self_paced_loss(logits, labels, threshold=1.0, kind=kind)
    torch.testing.assert_close(value, (v * ce).sum() / 12)
    ours, theirs = (torch.autograd.grad(x, logits, retain_graph=True)[0] for x in (value, (v * ce).sum() / 12))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("percentile", [0.01, 0.5, 0.75, 1.0])
@pytest.mark.parametrize("n", [1, 2, 7, 12])
def test_the_first_batch_sets_the_threshold(n: int, percentile: float) -> None:
    logits, labels = batch(n)
    loss = SelfPacedLoss(percentile=percentile)
    assert loss.threshold == torch.inf
    loss(logits, labels)
    torch.testing.assert_close(loss.threshold, losses(logits, labels).quantile(percentile))


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.9])
def test_the_threshold_is_an_exponential_average(decay: float) -> None:
    loss = SelfPacedLoss(decay=decay)
    expected = None
    for seed in range(4):
        logits, labels = batch(seed=seed)
        q = float(losses(logits, labels).quantile(0.75))
        expected = q if expected is None else decay * expected + (1 - decay) * q
        value = loss(logits, labels)
        assert loss.threshold.item() == pytest.approx(expected, rel=1e-6)
        torch.testing.assert_close(value, self_paced_loss(logits, labels, threshold=expected))  # moved before it is used


def test_only_training_moves_the_threshold() -> None:
    (a, ya), (b, yb) = batch(seed=1), batch(seed=2)
    loss = SelfPacedLoss().eval()
    torch.testing.assert_close(loss(a, ya), cross_entropy(a, ya))  # no threshold yet: all count
    assert loss.threshold == torch.inf
    loss.train()(a, ya)
    before = loss.threshold.item()
    value = loss.eval()(b, yb)
    assert loss.threshold.item() == before
    torch.testing.assert_close(value, self_paced_loss(b, yb, threshold=before))


def test_ignored_and_bad_rows_do_not_move_the_threshold() -> None:
    logits, labels = batch()
    expected = losses(logits[3:], labels[3:]).quantile(0.75)
    labels[0] = -100
    logits[1, 0] = torch.nan
    logits[2, 1] = torch.inf
    loss = SelfPacedLoss(reduction="none")
    assert loss(logits, labels).isnan().tolist() == [False, True, True] + [False] * 9
    torch.testing.assert_close(loss.threshold, expected)


@pytest.mark.parametrize("start", [torch.inf, 1.5])
def test_an_empty_batch_keeps_the_threshold(start: float) -> None:
    old = torch.tensor(start)
    for ce, kept in ((torch.ones(3), torch.zeros(3, dtype=torch.bool)), (torch.ones(0), torch.ones(0, dtype=torch.bool))):
        assert next_threshold(old, ce, kept, percentile=0.75, decay=0.5) == start
    endless = torch.full((3,), torch.inf)
    assert next_threshold(old, endless, torch.ones(3, dtype=torch.bool), percentile=0.75, decay=0.5) == start


def test_equal_losses_have_zero_weight() -> None:
    logits = torch.zeros(5, 4, requires_grad=True)
    SelfPacedLoss()(logits, torch.arange(5) % 4).backward()
    assert (logits.grad == 0).all()


def test_a_checkpoint_keeps_the_threshold() -> None:
    (a, ya), (b, yb) = batch(seed=1), batch(seed=2)
    loss = SelfPacedLoss()
    loss(a, ya)
    assert list(loss.state_dict()) == ["threshold"]
    resumed = SelfPacedLoss()
    resumed.load_state_dict(loss.state_dict())
    copied = pickle.loads(pickle.dumps(loss))
    value = loss(b, yb)
    for twin in (resumed, copied):
        assert torch.equal(twin(b, yb), value)
        assert torch.equal(twin.threshold, loss.threshold)
    assert repr(loss).startswith("SelfPacedLoss(kind='hard', percentile=0.75, decay=0.5, weight=None")


def test_the_emphasis_equals_cross_entropy_below_the_threshold() -> None:
    loss = SelfPacedLoss()
    loss.threshold.fill_(1.0)
    p = torch.tensor([0.2, 0.36, 0.37, 0.9], dtype=torch.float64)  # e^−1 = .368
    torch.testing.assert_close(mohs.emphasis(loss, p), torch.tensor([0.0, 0.0, 0.63, 0.1], dtype=torch.float64))
    assert loss.threshold == 1.0


def test_follows_the_threshold_when_compiled() -> None:
    torch._dynamo.reset()
    plain, other = SelfPacedLoss(kind="linear"), SelfPacedLoss(kind="linear")
    compiled = torch.compile(other, fullgraph=True, backend="eager")
    for seed in range(3):
        torch.testing.assert_close(compiled(*batch(seed=seed)), plain(*batch(seed=seed)))
        torch.testing.assert_close(other.threshold, plain.threshold)


def test_a_transform_leaves_the_threshold() -> None:
    logits, labels = batch()
    loss = SelfPacedLoss()
    torch.func.grad(lambda z: loss(z, labels))(logits)
    assert loss.threshold == torch.inf


def test_images() -> None:
    logits, labels = batch(24)
    dense, flat = SelfPacedLoss(), SelfPacedLoss()
    value = dense(logits.view(2, 3, 4, 4).movedim(-1, 1), labels.view(2, 3, 4))
    torch.testing.assert_close(value, flat(logits, labels))
    torch.testing.assert_close(dense.threshold, flat.threshold)


def test_wrong_settings() -> None:
    with pytest.raises(ValueError, match="kind must be one of hard, linear, got 'soft'"):
        SelfPacedLoss(kind="soft")
    for percentile in (0, 75):
        with pytest.raises(ValueError, match=rf"percentile must be over 0 and at most 1, got {percentile}"):
            SelfPacedLoss(percentile=percentile)
    for decay in (-0.1, 1):
        with pytest.raises(ValueError, match=f"decay must be at least 0 and under 1, got {decay}"):
            SelfPacedLoss(decay=decay)
    with pytest.raises(ValueError, match="label_smoothing is not defined for SelfPacedLoss"):
        SelfPacedLoss(label_smoothing=0.1)
