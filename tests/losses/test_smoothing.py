"""Online label smoothing: what is collected, when, and what becomes of it."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from mohs.losses.smoothing import OnlineSmoothingLoss, correct_softmax, next_soft_labels, online_smoothing_loss


def batch(n: int = 40, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(4, (n,), generator=generator)
    logits = torch.randn(n, 4, generator=generator) + 2 * torch.eye(4)[labels]
    return logits, labels


def collected_by_loop(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    sums, counts = torch.zeros(4, 4), torch.zeros(4, dtype=torch.long)
    for z, y in zip(logits, labels, strict=True):
        if y >= 0 and z.argmax() == y:
            sums[y] += z.softmax(0)
            counts[y] += 1
    return sums, counts


def test_collection_matches_a_loop_and_skips_ignored_rows() -> None:
    logits, labels = batch()
    labels[:10] = -100
    labels[3] = -100
    sums, counts = correct_softmax(logits, labels)
    expected_sums, expected_counts = collected_by_loop(logits, labels)
    torch.testing.assert_close(sums, expected_sums)
    assert counts.tolist() == expected_counts.tolist()
    assert 0 < counts.sum() < 30  # some right, some wrong


def test_collects_pixels_as_examples() -> None:
    logits, labels = batch()
    dense = correct_softmax(logits.view(2, 4, 5, 4).movedim(-1, 1), labels.view(2, 4, 5))
    for ours, flat in zip(dense, correct_softmax(logits, labels), strict=True):
        torch.testing.assert_close(ours, flat)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_bad_row_is_not_collected(bad: float) -> None:
    logits, labels = batch()
    expected = correct_softmax(logits[1:], labels[1:])
    logits[0, labels[0]] = bad  # argmax would call this row correct
    for ours, clean in zip(correct_softmax(logits, labels), expected, strict=True):
        torch.testing.assert_close(ours, clean)


def test_rows_are_means_and_a_class_without_examples_is_uniform() -> None:
    sums = torch.tensor([[3.0, 1.0], [0.0, 0.0]])
    assert next_soft_labels(sums, torch.tensor([4, 0])).tolist() == [[0.75, 0.25], [0.5, 0.5]]


def test_first_epoch() -> None:
    logits, labels = batch()
    expected = cross_entropy(logits, labels)
    torch.testing.assert_close(OnlineSmoothingLoss(num_classes=4, mix=0.3)(logits, labels), 0.7 * expected)
    uniform = OnlineSmoothingLoss(num_classes=4, mix=0.3, first="uniform")
    torch.testing.assert_close(uniform(logits, labels), cross_entropy(logits, labels, label_smoothing=0.3))


def test_without_mix_it_is_cross_entropy() -> None:
    logits, labels = batch()
    loss = OnlineSmoothingLoss(num_classes=4, mix=0.0)
    for _ in range(2):
        torch.testing.assert_close(loss(logits, labels), cross_entropy(logits, labels))
        loss.end_epoch()


def test_only_training_collects() -> None:
    logits, labels = batch()
    loss = OnlineSmoothingLoss(num_classes=4).eval()
    loss(logits, labels)
    assert loss.counts.sum() == 0
    loss.train()(logits, labels)
    assert loss.counts.tolist() == collected_by_loop(logits, labels)[1].tolist()


def test_no_gradient_is_collected_and_soft_labels_are_constant() -> None:
    logits, labels = batch()
    loss = OnlineSmoothingLoss(num_classes=4)
    loss(logits.requires_grad_(), labels)
    loss.end_epoch()
    assert not any(buffer.requires_grad for buffer in loss.buffers())
    value = loss(logits, labels)
    loss.end_epoch()  # before the backward pass: its values were copied, so the graph still stands
    value.backward()
    assert logits.grad.isfinite().all()


def test_epochs_follow_each_other() -> None:
    first, second = batch(seed=1), batch(seed=2)
    loss = OnlineSmoothingLoss(num_classes=4)
    torch.testing.assert_close(loss.soft_labels, torch.zeros(4, 4))
    for logits, labels in (first, second):
        for part in (slice(0, 15), slice(15, 40)):  # two batches per epoch
            loss(logits[part], labels[part])
        loss.end_epoch()
        torch.testing.assert_close(loss.soft_labels, next_soft_labels(*collected_by_loop(logits, labels)))
        torch.testing.assert_close(loss.soft_labels.sum(1), torch.ones(4))
    loss.end_epoch()  # nothing collected since
    torch.testing.assert_close(loss.soft_labels, torch.full((4, 4), 0.25))


def test_a_checkpoint_resumes_in_the_middle_of_an_epoch() -> None:
    (a, ya), (b, yb) = batch(seed=1), batch(seed=2)
    loss = OnlineSmoothingLoss(num_classes=4)
    loss(a, ya)
    loss.end_epoch()
    loss(b[:20], yb[:20])
    resumed = OnlineSmoothingLoss(num_classes=4)
    resumed.load_state_dict(loss.state_dict())
    for twin in (loss, resumed, pickle.loads(pickle.dumps(loss))):
        twin(b[20:], yb[20:])
        twin.end_epoch()
        torch.testing.assert_close(twin.soft_labels, next_soft_labels(*collected_by_loop(b, yb)))
        assert torch.equal(twin(a, ya), loss(a, ya))
    assert set(loss.state_dict()) == {"soft_labels", "sums", "counts"}


def test_module_is_the_function_at_its_soft_labels() -> None:
    logits, labels = batch()
    loss = OnlineSmoothingLoss(num_classes=4, mix=0.4, weight=[1.0, 2.0, 3.0, 4.0], reduction="none")
    loss(logits, labels)
    loss.end_epoch()
    weight = torch.tensor([1.0, 2.0, 3.0, 4.0])
    expected = online_smoothing_loss(logits, labels, soft_labels=loss.soft_labels, mix=0.4, reduction="none") * weight[labels]
    torch.testing.assert_close(loss(logits, labels), expected)


def test_a_class_masked_out_counts_for_nothing_while_its_soft_label_is_zero() -> None:
    logits, labels = batch()
    labels = labels % 3
    logits[:, 3] = -torch.inf
    loss = OnlineSmoothingLoss(num_classes=4)
    torch.testing.assert_close(loss(logits, labels), 0.5 * cross_entropy(logits, labels))


def test_collects_when_compiled() -> None:
    torch._dynamo.reset()
    logits, labels = batch()
    loss = OnlineSmoothingLoss(num_classes=4)
    compiled = torch.compile(loss, fullgraph=True, backend="eager")
    compiled(logits, labels)
    compiled(logits, labels)
    expected = collected_by_loop(logits, labels)
    torch.testing.assert_close(loss.sums, 2 * expected[0])
    assert loss.counts.tolist() == (2 * expected[1]).tolist()


def test_a_transform_collects_nothing() -> None:
    logits, labels = batch()
    loss = OnlineSmoothingLoss(num_classes=4)
    torch.func.grad(lambda z: loss(z, labels))(logits)
    assert loss.counts.sum() == 0


def test_wrong_settings() -> None:
    with pytest.raises(ValueError, match="num_classes must be an integer of at least 2, got 1"):
        OnlineSmoothingLoss(num_classes=1)
    with pytest.raises(ValueError, match=r"mix must be between 0 and 1, got 1.5"):
        OnlineSmoothingLoss(num_classes=4, mix=1.5)
    with pytest.raises(ValueError, match="first must be one of zero, uniform, got 'half'"):
        OnlineSmoothingLoss(num_classes=4, first="half")
    with pytest.raises(ValueError, match="label_smoothing is not defined for OnlineSmoothingLoss"):
        OnlineSmoothingLoss(num_classes=4, label_smoothing=0.1)
    loss = OnlineSmoothingLoss(num_classes=3)
    with pytest.raises(ValueError, match=r"num_classes\) must have shape \(4, 4\) for logits with 4 classes, got shape \(3, 3\)"):
        loss(*batch())
    assert loss.counts.sum() == 0
