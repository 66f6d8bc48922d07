"""The Recorder against an obvious loop, over shuffles, repeats, restarts, ranks and bad rows."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import mohs
from mohs.hardness.angular import avh
from mohs.hardness.dynamics import DYNAMICS, broken_rows
from mohs.hardness.recorder import Recorder
from mohs.hardness.table import classes_of

CLASSES = 4
COMPARED = [
    *(name for name in DYNAMICS if name != "mean_avh"),
    "epochs",
    "margin",
    "confidence",
    "top_confidence",
    "predicted",
    "label",
]


def story(n: int = 30, epochs: int = 6, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """logits (epochs, n, CLASSES) of examples that are learned and forgotten, labels (n,)."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (n,), generator=generator)
    logits = 2 * torch.randn(epochs, n, CLASSES, generator=generator)
    logits[:, torch.arange(n), labels] += torch.linspace(-1, 2, epochs).unsqueeze(1)
    return logits, labels


def by_loop(logits: list[list[float]], label: int) -> dict[str, float]:
    """The dynamics of one example from its logits at each epoch, in plain Python."""
    gaps, margins, confidences, right = [], [], [], []
    for row in logits:
        others = [v for k, v in enumerate(row) if k != label]
        gaps.append(row[label] - max(others))
        margins.append(row[label] - max(others) - math.log(sum(math.exp(v - max(others)) for v in others)))
        confidences.append(1 / (1 + math.exp(-margins[-1])))
        right.append(gaps[-1] > 0)
    mean = sum(confidences) / len(confidences)
    return {
        "aum": sum(gaps) / len(gaps),
        "mean_margin": sum(margins) / len(margins),
        "mean_confidence": mean,
        "variability": math.sqrt(sum((p - mean) ** 2 for p in confidences) / len(confidences)),
        "forgetting": sum(was and not now for was, now in pairwise(right)) if True in right else len(right),
        "first_learned": right.index(True) if True in right else len(right),
        "epochs": len(right),
        "margin": margins[-1],
        "confidence": confidences[-1],
        "top_confidence": max(math.exp(v) for v in logits[-1]) / sum(math.exp(v) for v in logits[-1]),
        "predicted": max(range(len(logits[-1])), key=lambda k: logits[-1][k]),
        "label": label,
    }


def check(table: Any, logits: torch.Tensor, labels: torch.Tensor) -> None:
    """Every column of the table is what the loop finds."""
    for i, row in enumerate(table.to_pylist()):
        expected = by_loop(logits[:, i].tolist(), int(labels[i]))
        assert row["id"] == i
        for name in COMPARED:
            assert row[name] == pytest.approx(expected[name], rel=1e-5, abs=2e-6), (i, name)


def same(first: Any, second: Any) -> None:
    """Two tables with the same columns and values; NaN and nothing are equal to themselves."""
    assert first.column_names == second.column_names
    for name in first.column_names:
        a, b = first.column(name).to_pylist(), second.column(name).to_pylist()
        assert a == pytest.approx(b, nan_ok=True, rel=1e-6, abs=1e-6) if isinstance(a[0], float) else a == b, name


@given(seed=st.integers(0, 2**31), n=st.integers(1, 12), epochs=st.integers(1, 7), size=st.integers(1, 5), told=st.booleans())
@settings(deadline=None, derandomize=True, max_examples=40)
def test_every_dynamic_matches_a_loop_in_any_order(seed: int, n: int, epochs: int, size: int, told: bool) -> None:
    logits, labels = story(n, epochs, seed)
    generator = torch.Generator().manual_seed(seed)
    recorder = Recorder(n)
    for epoch in range(epochs):
        for ids in torch.randperm(n, generator=generator).split(size):
            recorder.update(ids, logits[epoch, ids], labels[ids], epoch=epoch if told else None)
        recorder.end_epoch()
    check(recorder.table(), logits, labels)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_precisions(dtype: torch.dtype) -> None:
    logits, labels = story()
    logits = logits.to(dtype)
    recorder = Recorder(30)
    for epoch in range(6):
        recorder.update(torch.arange(30, dtype=torch.int32), logits[epoch].requires_grad_(), labels.to(torch.uint8))
    check(recorder.table(), logits.double().detach(), labels)


@pytest.mark.parametrize("told", [False, True])
def test_never_learned_and_ties(told: bool) -> None:
    recorder = Recorder(2)
    for epoch in range(3):
        tie, wrong = [1.0, 1.0, 0.0], [0.0, 5.0, 0.0]
        recorder.update(torch.tensor([0, 1]), torch.tensor([tie, wrong]), torch.tensor([0, 0]), epoch=epoch if told else None)
    table = recorder.table()
    assert table.column("first_learned").to_pylist() == [3, 3]  # right is above all others
    assert table.column("forgetting").to_pylist() == [3, 3]  # as if forgotten at every epoch


def test_with_an_epoch_an_id_counts_once() -> None:
    logits, labels = story()
    recorder = Recorder(30)
    generator = torch.Generator().manual_seed(0)
    for epoch in range(6):
        order = torch.randperm(30, generator=generator)
        for ids in [*torch.cat([order, order[:2]]).split(8), order[:8]]:  # padded, and its first batch comes again
            padded = torch.cat([ids, ids[:3]])  # and every batch repeats three of its own
            values = logits[epoch, padded].clone()
            values[len(ids) :] += 1  # what comes later must not count
            recorder.update(padded, values, labels[padded], epoch=epoch)
    check(recorder.table(), logits, labels)


def test_without_an_epoch_every_row_counts() -> None:
    logits, labels = story(2, 1)
    recorder = Recorder(2)
    recorder.update(torch.tensor([0, 0, 1]), logits[0, [0, 0, 1]], labels[[0, 0, 1]])
    assert recorder.table().column("epochs").to_pylist() == [2, 1]
    assert recorder.table().column("aum").to_pylist()[0] == pytest.approx(
        by_loop([logits[0, 0].tolist()] * 2, int(labels[0]))["aum"]
    )


@pytest.mark.parametrize("track", [None, ("aum",)])
def test_resuming_from_a_saved_state_continues_exactly(track: tuple[str, ...] | None, tmp_path: Path) -> None:
    logits, labels = story()
    whole, first = Recorder(30, track=track), Recorder(30, track=track)
    steps = [(e, ids) for e in range(6) for ids in torch.arange(30).split(7)]
    for i, (epoch, ids) in enumerate(steps):
        whole.update(ids, logits[epoch, ids], labels[ids], epoch=None if track else epoch)
        if i == 13:  # in the middle of an epoch
            torch.save(first.state_dict(), tmp_path / "record.pt")
            state = torch.load(tmp_path / "record.pt", weights_only=True)
            first.update(ids, logits[0, ids] + 9, labels[ids])  # what is done after saving is not saved
            first = Recorder(30, track=track)
            first.load_state_dict(state)
        first.update(ids, logits[epoch, ids], labels[ids], epoch=None if track else epoch)
    assert whole.table().equals(first.table())


def test_a_state_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="num_examples=3, this Recorder 4"):
        Recorder(4).load_state_dict(Recorder(3).state_dict())
    with pytest.raises(ValueError, match="track="):
        Recorder(3).load_state_dict(Recorder(3, track=("aum",)).state_dict())


RANK = """
import torch
from mohs.hardness.recorder import Recorder
torch.distributed.init_process_group("gloo")
rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
recorder = Recorder(33)  # two are never seen
for epoch in range(6):  # its share of every epoch, padded so that all have as many, moving from epoch to epoch
    order = torch.randperm(31, generator=torch.Generator().manual_seed(epoch))
    order = torch.cat([order, order[: -31 % ranks]])
    for ids in order[rank::ranks].split(5):
        recorder.update(ids, logits[epoch, ids], labels[ids], epoch=epoch)
    recorder.end_epoch()
recorder._bad += torch.tensor([rank + 1, 0, 0])  # as a device would have counted them
for _ in range(2):  # counted once, however often it is merged
    try:
        recorder.end_epoch()
    except ValueError as error:
        assert "3 with ids out of range" in str(error)
    else:
        raise AssertionError("bad rows of another rank were not told")
torch.save(recorder.table(skip_bad=True).to_pydict(), folder / f"{rank}.pt")
torch.distributed.destroy_process_group()
"""


def test_two_ranks_match_one_process(run_ranks: Callable[..., list[int]], tmp_path: Path) -> None:
    logits, labels = story(31)
    assert run_ranks(RANK, logits=logits, labels=labels, folder=tmp_path) == [0, 0]
    alone = Recorder(33)
    for epoch in range(6):
        alone.update(torch.arange(31), logits[epoch], labels, epoch=epoch)
    expected = alone.table().to_pydict()
    for rank in range(2):
        found = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        assert found.keys() == expected.keys()
        for name in expected:
            assert found[name] == pytest.approx(expected[name], nan_ok=True) if name != "label" else found[name] == expected[name]
    assert expected["label"][-2:] == [None, None]


BAD_ROWS = {
    "id past the end": ({"ids": 30}, r"1 row\(s\) with ids out of range \(row 2: id 30 of 0..29"),
    "id far out": ({"ids": 99}, r"row 2: id 99"),
    "negative id": ({"ids": -1}, r"row 2: id -1"),
    "label past the end": ({"labels": CLASSES}, r"labels out of range \(row 2: .*label 4 of 0..3"),
    "negative label": ({"labels": -1}, r"labels out of range \(row 2: .*label -1"),
    "NaN": ({"logits": math.nan}, r"logits that are NaN or infinite \(row 2: id 2 "),
    "infinite": ({"logits": math.inf}, r"logits that are NaN or infinite \(row 2"),
    "label masked": ({"logits": -math.inf}, r"logits that are NaN or infinite \(row 2"),
}


def spoilt(what: dict[str, Any]) -> dict[str, torch.Tensor]:
    """A batch of five with something wrong in row 2."""
    logits, labels = story()
    batch = {"ids": torch.arange(5), "logits": logits[0, :5].clone(), "labels": labels[:5].clone()}
    for name, value in what.items():
        place = (2, int(labels[2])) if name == "logits" else 2
        batch[name][place] = value
    return batch


@pytest.mark.parametrize("track", [None, ("aum",)])
@pytest.mark.parametrize(("what", "match"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_a_bad_row_is_named_and_its_batch_not_recorded(what: dict, match: str, track: tuple[str, ...] | None) -> None:
    logits, labels = story()
    recorder, clean = Recorder(30, track=track), Recorder(30, track=track)
    for one in (recorder, clean):
        one.update(torch.arange(30), logits[0], labels)
    with pytest.raises(ValueError, match=match):
        recorder.update(**spoilt(what))
    for one in (recorder, clean):
        one.update(torch.arange(30), logits[1], labels)
    same(recorder.table(), clean.table())


@pytest.mark.parametrize("track", [None, ("aum",)])
@pytest.mark.parametrize(("what", "match"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_on_other_devices_a_bad_row_is_skipped_and_reported_later(
    what: dict, match: str, track: tuple[str, ...] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path of other devices, run on CPU tensors: the one question that parts them is answered for it."""
    recorder = Recorder(30, track=track)
    batch = spoilt(what)
    step = recorder._add_gap if track else recorder._add
    monkeypatch.setattr(torch.Tensor, "is_cpu", property(lambda self: False))
    ids, values, given = recorder._drop_bad(batch["ids"], batch["logits"], batch["labels"])
    step(*(ids, values, given) if track else (ids, values, given, None, None))
    monkeypatch.undo()
    kind = match.partition("ids out of")[1] or match.partition("labels out of")[1] or match.partition("logits that")[1]
    with pytest.raises(ValueError, match=f"1 with {kind or 'ids out of'}"):
        recorder.end_epoch()
    with pytest.raises(ValueError, match="1 with"):
        recorder.table()
    alone = Recorder(30, track=track)
    kept = [0, 1, 3, 4]
    alone.update(*(story()[0][0, kept] if name == "logits" else batch[name][kept] for name in ("ids", "logits", "labels")))
    same(recorder.table(skip_bad=True), alone.table())


def test_a_masked_class_is_not_a_bad_row_on_any_device() -> None:
    logits, labels = torch.tensor([[0.0, -math.inf, 1.0], [0.0, -math.inf, -math.inf]]), torch.tensor([2, 0])
    assert broken_rows(logits, labels).tolist() == [False, True]  # with nothing beside the label there is no margin
    recorder = Recorder(2)
    recorder.update(torch.tensor([0]), logits[:1], labels[:1])
    assert recorder.table().column("aum").to_pylist()[0] == 1


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"ids": torch.arange(4)}, r"ids must have shape \(B,\).*\(4,\) for \(5, 4\)"),
        ({"labels": torch.zeros(5, 1, dtype=torch.long)}, "labels must have shape"),
        ({"ids": torch.arange(5.0)}, "ids must be integers, got torch.float32"),
        ({"logits": torch.zeros(5, 1)}, "at least 2 classes"),
        ({"logits": torch.zeros(5, 4, dtype=torch.long)}, "floating point"),
        ({"logits": torch.zeros(5, 4, 2)}, "must have shape"),
    ],
)
def test_shapes_and_types_are_checked(change: dict, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        Recorder(30).update(**{**spoilt({}), **change})


@pytest.mark.parametrize(
    ("arguments", "options", "match"),
    [
        ((0,), {}, "num_examples must be an integer of at least 1, got 0"),
        ((3, "head"), {}, "head must have a weight.*got str"),
        ((3,), {"track": ("aum", "ember")}, "cannot track 'ember'; known: aum, mean_margin"),
        ((3,), {"track": ("mean_avh",)}, r"mean_avh' \(it needs a head\)"),
    ],
)
def test_settings_are_checked_at_once(arguments: tuple, options: dict, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        Recorder(*arguments, **options)


def test_with_a_head_avh_is_averaged() -> None:
    torch.manual_seed(0)
    head, labels = nn.Linear(6, CLASSES), story(10)[1]
    recorder, seen = Recorder(10, head), []
    for _ in range(3):
        features = torch.randn(10, 6, requires_grad=True)
        recorder.update(torch.arange(10), head(features), labels, features)
        seen.append(avh(features.detach(), head.weight.detach(), labels))
        with torch.no_grad():
            head.weight += 0.3 * torch.randn_like(head.weight)  # each look is at the weights of its time
    mean = torch.stack(seen).double().mean(0).tolist()
    assert recorder.table().column("mean_avh").to_pylist() == pytest.approx(mean, rel=1e-6)
    with pytest.raises(ValueError, match="features are needed"):
        recorder.update(torch.arange(10), torch.zeros(10, CLASSES), labels)


def test_unseen_examples_have_no_values() -> None:
    recorder = Recorder(3)
    recorder.update(torch.tensor([1]), torch.tensor([[1.0, 0.0]]), torch.tensor([0]))
    recorder.update(torch.zeros(0, dtype=torch.long), torch.zeros(0, 2), torch.zeros(0, dtype=torch.long))  # an empty batch
    for unseen in (recorder.table().to_pylist()[0], recorder.table().to_pylist()[2]):
        assert unseen["epochs"] == 0
        for name in ("label", "predicted", "forgetting", "first_learned"):
            assert unseen[name] is None
        for name in ("aum", "mean_margin", "mean_confidence", "variability", "margin", "confidence"):
            assert math.isnan(unseen[name])
    assert recorder.table().to_pylist()[1]["label"] == 0


def test_it_prints_its_size_and_what_it_tracks() -> None:
    assert repr(Recorder(7, track=("aum",))) == "Recorder(7, track=('aum',))"
    assert repr(Recorder(7, track=("aum",), positions=3)) == "Recorder(7, track=('aum',), positions=3)"


def test_class_names() -> None:
    recorder = Recorder(2)
    recorder.update(torch.tensor([0]), torch.tensor([[1.0, 0.0, 2.0]]), torch.tensor([0]))
    table = recorder.table(classes=["ant", "bee", "cow"])
    assert table.column("label").to_pylist() == ["ant", None]
    assert table.column("predicted").to_pylist() == ["cow", None]
    assert classes_of(table) == ["ant", "bee", "cow"]


@pytest.mark.parametrize("track", [("aum",), ("forgetting", "aum"), ("variability",)])
def test_only_what_is_tracked_comes_back(track: tuple[str, ...]) -> None:
    logits, labels = story()
    recorder, whole = Recorder(30, track=track), Recorder(30)
    for epoch in range(6):
        for one in (recorder, whole):
            one.update(torch.arange(30), logits[epoch], labels)
    table = recorder.table()
    assert set(DYNAMICS) & set(table.column_names) == set(track)
    for name in track:
        assert table.column(name).to_pylist() == pytest.approx(whole.table().column(name).to_pylist())
    if track == ("aum",):
        with pytest.raises(ValueError, match="epoch= needs the full record"):
            recorder.update(torch.arange(30), logits[0], labels, epoch=0)


def test_memory_depends_only_on_the_number_of_examples() -> None:
    def held(recorder: Recorder) -> int:
        return sum(value.nbytes for value in vars(recorder).values() if isinstance(value, torch.Tensor))

    before = held(Recorder(1000))
    recorder = Recorder(1000)
    for _ in range(20):
        recorder.update(torch.arange(50), torch.randn(50, 300), torch.randint(300, (50,)))
    assert held(recorder) == before
    assert held(Recorder(10_000)) < 10.1 * before


def test_updates_keep_no_graph_and_change_no_input() -> None:
    logits, labels = story(5, 1)
    leaf = logits[0].clone().requires_grad_()
    recorder = Recorder(5)
    recorder.update(torch.arange(5), leaf * 1, labels)
    recorder.update(torch.arange(5), leaf, labels)
    assert torch.equal(leaf.detach(), logits[0])
    assert not any(value.requires_grad for value in vars(recorder).values() if isinstance(value, torch.Tensor))
    assert np.isfinite(recorder.table().column("aum").to_numpy()).all()


def test_aum_matches_the_aum_package(tmp_path: Path) -> None:
    """The peer's own package on the same looks."""
    aum = pytest.importorskip("aum", reason="needs the bench extra")
    generator = torch.Generator().manual_seed(0)
    theirs, ours = aum.AUMCalculator(str(tmp_path), compressed=True), Recorder(40)
    for _ in range(5):
        for ids in torch.randperm(40, generator=generator).split(8):
            logits, labels = torch.randn(8, 6, generator=generator), ids % 6
            theirs.update(logits, labels, ids.tolist())
            ours.update(ids, logits, labels)
    theirs.finalize()
    with (tmp_path / "aum_values.csv").open() as file:
        expected = {int(row["sample_id"]): float(row["aum"]) for row in csv.DictReader(file)}
    got = ours.table().column("aum").to_pylist()
    assert got == pytest.approx([expected[i] for i in range(40)], abs=1e-5)


def test_statistics_of_a_fused_head_record_what_its_logits_would() -> None:
    generator = torch.Generator().manual_seed(0)
    weight, plain, fused = torch.randn(5, 8, generator=generator), Recorder(30), Recorder(30)
    labels = torch.randint(5, (30,), generator=generator)
    for epoch in range(3):
        for ids in torch.randperm(30, generator=generator).split(10):
            features = torch.randn(10, 8, generator=generator)
            plain.update(ids, features @ weight.T, labels[ids], epoch=epoch)
            _, seen = mohs.linear_loss(features, weight, labels[ids], return_stats=True)
            fused.update_statistics(ids, seen, labels[ids], epoch=epoch)
    ours, theirs = fused.table().to_pydict(), plain.table().to_pydict()
    assert ours.keys() == theirs.keys()
    for name, column in theirs.items():
        assert ours[name] == (pytest.approx(column, rel=1e-4, abs=1e-5) if isinstance(column[0], float) else column), name


def test_statistics_of_ignored_examples_do_not_count_and_bad_ids_raise() -> None:
    weight, features = torch.randn(5, 8), torch.randn(3, 8)
    labels = torch.tensor([1, -100, 2])
    _, seen = mohs.linear_loss(features, weight, labels, return_stats=True)
    recorder = Recorder(3)
    recorder.update_statistics(torch.arange(3), seen, labels)
    assert recorder.table()["epochs"].to_pylist() == [1, 0, 1]
    with pytest.raises(ValueError, match="1 with ids out of range"):
        recorder.update_statistics(torch.tensor([0, 1, 3]), seen, labels)
    with pytest.raises(ValueError, match="tracks more than aum"):
        Recorder(3, track=("aum",)).update_statistics(torch.arange(3), seen, labels)


def test_ids_and_labels_as_arrays_and_lists() -> None:
    logits, labels = story(8, 1)
    expected = Recorder(8)
    expected.update(torch.arange(8), logits[0], labels)
    for convert in (np.asarray, list, lambda values: [int(v) for v in values], lambda values: np.asarray(values, np.int32)):
        recorder = Recorder(8)
        recorder.update(convert(range(8)), logits[0], convert(labels.tolist()))
        assert recorder.table().equals(expected.table())


@pytest.mark.parametrize("shape", [(5,), (2, 3)])
@pytest.mark.parametrize("numbered", [False, True])
def test_positions_are_examples_of_their_own(shape: tuple[int, ...], numbered: bool) -> None:
    """Logits (B, K, d1, ...) record what the same rows, flattened by hand, do; the label −100 is left out."""
    n, count = 4, math.prod(shape)
    generator = torch.Generator().manual_seed(0)
    head = nn.Linear(3, CLASSES)
    recorder, by_hand = Recorder(n, head, positions=count + 1), Recorder(n * (count + 1), head)
    for epoch in range(3):
        for ids in torch.randperm(n, generator=generator).view(2, 2):
            logits = torch.randn(2, CLASSES, *shape, generator=generator)
            features = torch.randn(2, 3, *shape, generator=generator)
            labels = torch.randint(CLASSES, (2, *shape), generator=generator)
            labels.view(2, -1)[0, 1] = -100
            logits.movedim(1, -1).view(2, -1, CLASSES)[0, 1] = torch.nan  # must not be read
            given = recorder.position_ids(ids, labels) if numbered else ids
            recorder.update(given, logits, labels, features, epoch=epoch)
            for b, number in enumerate(ids.tolist()):
                rows = [j for j in range(count) if labels[b].flatten()[j] != -100]
                by_hand.update(
                    [number * (count + 1) + j for j in rows],
                    logits[b].flatten(1).T[rows],
                    labels[b].flatten()[rows],
                    features[b].flatten(1).T[rows],
                    epoch=epoch,
                )
    table = recorder.table()
    assert table.column("example").to_pylist() == [i for i in range(n) for _ in range(count + 1)]
    np.testing.assert_equal(table.drop_columns(["example", "part"]).to_pydict(), by_hand.table().to_pydict())
    assert recorder.table().column("epochs").to_pylist()[count] == 0  # a position that no example has


def test_ignored_positions_are_not_bad_rows_on_a_device() -> None:
    recorder = Recorder(2, positions=2)
    labels = torch.tensor([[0, -100], [-100, -100]])
    logits = torch.randn(2, CLASSES, 2)
    flat = logits.movedim(1, -1).flatten(0, 1)
    ids, _, kept = recorder._drop_bad(torch.arange(4), flat, labels.flatten())
    assert ids.tolist() == [0, 4, 4, 4]
    assert kept.tolist() == [0, 0, 0, 0]
    recorder.end_epoch()


@pytest.mark.parametrize("track", [None, ("aum",)])
def test_examples_without_a_label_are_not_recorded(track: tuple[str, ...] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels of −100, which the losses ignore too, on the CPU and by the path of other devices."""
    logits, labels = story(8, 1)
    ids, ignored = torch.arange(8), torch.tensor([0, 1, 0, 0, 0, 0, 1, 0], dtype=torch.bool)
    spoilt_logits = logits[0].masked_fill(ignored.unsqueeze(1), torch.nan)  # must not be read
    expected, recorder, device = (Recorder(8, track=track) for _ in range(3))
    expected.update(ids[~ignored], logits[0][~ignored], labels[~ignored])
    recorder.update(ids, spoilt_logits, labels.masked_fill(ignored, -100))
    same(recorder.table(), expected.table())
    recorder.update(ids, spoilt_logits, torch.full_like(labels, -100))
    same(recorder.table(), expected.table())
    monkeypatch.setattr(torch.Tensor, "is_cpu", property(lambda self: False))
    kept = device._drop_bad(ids, spoilt_logits, labels.masked_fill(ignored, -100))
    device._add_gap(*kept) if track else device._add(*kept, None, None)
    monkeypatch.undo()
    same(device.table(), expected.table())


def test_an_example_that_was_never_learned_is_first_learned_after_all_its_rows() -> None:
    recorder = Recorder(2)
    recorder.update([0, 0, 1], torch.tensor([[1.0, 0.0]] * 3), [1, 1, 0])  # twice in a batch: two augmented views
    assert recorder.table()["epochs"].to_pylist() == [2, 1]
    assert recorder.table()["first_learned"].to_pylist() == [2, 0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Recorder(2.5), "num_examples must be an integer of at least 1, got 2.5"),
        (lambda: Recorder(3).update(["a", "b"], torch.zeros(2, 3), [0, 1]), r"ids must be integers \(.*\); mohs.WithIds"),
        (lambda: Recorder(3).update([0, 1], torch.zeros(2, 3), ["a", "b"]), "labels must be integers"),
    ],
)
def test_arguments_of_a_wrong_type_are_named(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_too_few_class_names_are_an_error() -> None:
    recorder = Recorder(2)
    recorder.update([0, 1], torch.eye(3)[:2], [2, 0])
    with pytest.raises(ValueError, match="classes has 2 names, but the record holds class 2"):
        recorder.table(classes=["a", "b"])


def test_positions_that_do_not_fit_say_what_to_do() -> None:
    logits, labels = torch.randn(2, CLASSES, 5), torch.zeros(2, 5, dtype=torch.long)
    with pytest.raises(ValueError, match=r"positions=1: give ids \(B,\) to a Recorder\(N, positions=5 or more\)"):
        Recorder(10).update(torch.arange(2), logits, labels)
    with pytest.raises(ValueError, match=r"labels must have shape \(B, d1, ...\)"):
        Recorder(10, positions=5).update(torch.arange(2), logits, labels[:, 0])
    with pytest.raises(ValueError, match="positions must be an integer of at least 1"):
        Recorder(10, positions=0)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="track must be a list of texts or None, got 'aum'"):
        Recorder(4, track="aum")
    recorder = Recorder(4)
    with pytest.raises(ValueError, match="logits must be a tensor, got ndarray"):
        recorder.update([0], np.zeros((1, 3)), [0])
    with pytest.raises(ValueError, match=r"state has no 'num_examples': give the state_dict\(\) of a Recorder"):
        recorder.load_state_dict({})


def test_shares_of_several_classes_are_not_rounded_down() -> None:
    recorder, logits = Recorder(2, positions=3), torch.randn(2, 3)
    with pytest.raises(ValueError, match="1 row\\(s\\) with labels out of range"):
        recorder.update([0, 1], logits, torch.tensor([[0.0, 0.4, 1.0], [1.0, 0.0, 0.0]]))
    for dtype in (torch.bool, torch.uint8, torch.float32):
        recorder.update([0, 1], logits, torch.tensor([[0, 1, 1], [1, 0, 0]]).to(dtype))
        assert recorder.table().column("label").to_pylist() == [0, 1, 1, 1, 0, 0]
