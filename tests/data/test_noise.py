from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mohs._core.errors import DataError
from mohs.data.examples import Examples
from mohs.data.noise import GROUPS, MAPS, NOISES, add_noise, asymmetric_noise, map_noise, pair_noise, symmetric_noise
from mohs.data.open_set import replace_images
from mohs.data.readers.cifar_names import CIFAR10, CIFAR100
from mohs.margin import NO_LABEL

LABELS = torch.arange(10).repeat(2000)


def examples(classes: list[object] | None = None, n: int = 40) -> Examples:
    names = list("abcd") if classes is None else classes
    return Examples(torch.rand(n, 1, 4, 4), torch.arange(n) % len(names), names)


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.8, 1.0])
def test_symmetric_noise_moves_labels_uniformly_to_other_classes(rate: float) -> None:
    noisy = symmetric_noise(LABELS, rate=rate, num_classes=10, seed=0)
    moved = noisy != LABELS
    spread = 4 * (rate * (1 - rate) / len(LABELS)) ** 0.5
    assert abs(float(moved.double().mean()) - rate) <= spread
    if rate:
        steps = torch.bincount(((noisy - LABELS) % 10)[moved], minlength=10)
        assert steps[0] == 0
        assert float((steps[1:] / steps.sum() - 1 / 9).abs().max()) < 0.02


@settings(deadline=None, derandomize=True, max_examples=40)
@given(st.integers(2, 6), st.floats(0, 1), st.integers(0, 100), st.booleans())
def test_noise_is_seeded_and_never_keeps_a_moved_label(classes: int, rate: float, seed: int, exact: bool) -> None:
    labels = torch.arange(60) % classes
    for noise in (symmetric_noise, pair_noise):
        noisy = noise(labels, rate=rate, num_classes=classes, seed=seed, exact=exact)
        assert torch.equal(noisy, noise(labels, rate=rate, num_classes=classes, seed=seed, exact=exact))
        assert 0 <= int(noisy.min()) <= int(noisy.max()) < classes
        if exact:
            assert int((noisy != labels).sum()) == round(rate * 60)
    assert torch.equal(symmetric_noise(labels, rate=1.0, num_classes=classes, seed=seed) == labels, torch.zeros(60).bool())


def test_a_higher_rate_moves_the_same_labels_and_more() -> None:
    low, high = (symmetric_noise(LABELS, rate=rate, num_classes=10, seed=3) for rate in (0.2, 0.5))
    assert bool(((low == LABELS) | (low == high)).all())


def test_asymmetric_stays_within_the_group_and_is_uniform_there() -> None:
    groups = [[0, 5, 3], [1, 2], [9]]
    noisy = asymmetric_noise(LABELS, rate=0.6, groups=groups, num_classes=10, seed=0)
    for label in range(10):
        group = next((group for group in groups if label in group), [label])
        own = noisy[label == LABELS]
        assert set(own.tolist()) <= set(group)
        others = [one for one in group if one != label]
        for one in others:
            assert float((own == one).double().mean()) == pytest.approx(0.6 / len(others), abs=0.05)
    exact = asymmetric_noise(LABELS, rate=0.5, groups=groups, num_classes=10, seed=0, exact=True)
    assert int((exact != LABELS).sum()) == 5000  # half of the five classes that can move


def test_map_and_pair_noise_move_to_the_given_classes() -> None:
    noisy = map_noise(LABELS, rate=1.0, to={0: 3, 4: 4}, num_classes=10, seed=0)
    assert set(noisy[LABELS == 0].tolist()) == {3}
    assert torch.equal(noisy[LABELS > 0], LABELS[LABELS > 0])
    assert torch.equal(pair_noise(LABELS, rate=1.0, num_classes=10, seed=0), (LABELS + 1) % 10)


def test_noise_by_name_keeps_the_original_labels_as_the_truth() -> None:
    data = examples()
    noisy = add_noise(data, {"name": "symmetric", "rate": 0.5}, 1)
    assert torch.equal(noisy.truth, data.labels)  # type: ignore[arg-type]
    again = add_noise(noisy, {"name": "pair", "rate": 0.5}, 2)
    assert torch.equal(again.truth, data.labels)  # type: ignore[arg-type]
    assert torch.equal(noisy.labels, symmetric_noise(data.labels, rate=0.5, num_classes=4, seed=1))


def test_groups_and_maps_by_names_numbers_and_known_sets() -> None:
    data = examples()
    by_name = add_noise(data, {"name": "asymmetric", "rate": 1.0, "groups": [["a", "b"]]}, 0)
    assert by_name.labels[:4].tolist() == [1, 0, 2, 3]
    by_number = add_noise(data, {"name": "asymmetric", "rate": 1.0, "to": {"0": 1, "1": "0"}}, 0)
    assert torch.equal(by_number.labels, by_name.labels)
    tens = add_noise(examples(list(CIFAR10)), {"name": "asymmetric", "rate": 1.0, "to": "cifar10"}, 0)
    assert [CIFAR10[i] for i in tens.labels[:10].tolist()] == [MAPS["cifar10"].get(name, name) for name in CIFAR10]
    hundred = add_noise(examples(list(CIFAR100), 500), {"name": "asymmetric", "rate": 1.0, "groups": "cifar100"}, 0)
    group = {name: i for i, names in enumerate(GROUPS["cifar100"]) for name in names}
    for label, truth in zip(hundred.labels.tolist(), hundred.truth.tolist(), strict=True):  # type: ignore[union-attr]
        assert label != truth
        assert group[CIFAR100[label]] == group[CIFAR100[truth]]


def test_human_labels_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = examples()
    worse = (data.labels.numpy() + (np.arange(40) < 8)) % 4
    np.savez(tmp_path / "n.npz", clean=data.labels.numpy(), worse=worse)
    noisy = add_noise(data, {"name": "human", "file": f"{tmp_path}/n.npz:worse"}, 0)
    assert noisy.labels.tolist() == worse.tolist()
    assert torch.equal(noisy.truth, data.labels)  # type: ignore[arg-type]
    monkeypatch.setenv("MOHS_DATA", str(tmp_path))
    assert torch.equal(add_noise(data, {"name": "human", "file": "n.npz", "column": "worse"}, 0).labels, noisy.labels)
    (tmp_path / "n.csv").write_text("who,said\n" + "".join(f"1,{'abcd'[i]}\n" for i in worse))
    assert torch.equal(add_noise(data, {"name": "human", "file": "n.csv:said"}, 0).labels, noisy.labels)


def test_human_labels_that_do_not_match_the_examples(tmp_path: Path) -> None:
    data = examples()
    y = data.labels.numpy()
    np.savez(tmp_path / "n.npz", clean=y[::-1], worse=y, short=y[:3])
    np.savez(tmp_path / "other.npz", short=y[:3], strange=y + 9)
    (tmp_path / "gap.csv").write_text("said\n" + "a\n" * 39 + '""\n')
    (tmp_path / "bad.npz").write_bytes(b"PK nonsense")
    for file, message in [
        (
            "n.npz:worse",
            "row 0: 'clean' is class 'd', the data's 'a'; 40 differ: the file and the data are not",
        ),
        ("n.npz:best", "no labels called 'best'; there are clean, worse, short"),
        ("other.npz:short", "'short' has 3 labels, data 40 examples: give the labels of exactly these examples"),
        ("other.npz:strange", "the label of row 0 is 9, not one of the 4 classes"),
        ("gap.csv:said", r"gap\.csv, line 41: 'said' is empty"),
        ("none.npz:worse", "no such file here"),
        ("bad.npz:worse", "cannot be read as .npz"),
    ]:
        with pytest.raises(DataError, match=message):
            add_noise(data, {"name": "human", "file": f"{tmp_path}/{file}"}, 0)
    (tmp_path / "n.txt").write_text("")
    with pytest.raises(DataError, match=r"labels are read from \.npz, \.csv"):
        add_noise(data, {"name": "human", "file": f"{tmp_path}/n.txt:x"}, 0)
    with pytest.raises(ValueError, match=r"name the labels in n\.npz: write FILE:COLUMN"):
        add_noise(data, {"name": "human", "file": "n.npz"}, 0)


def test_open_set_images_keep_their_labels_and_have_no_truth() -> None:
    data = examples()
    others = Examples(torch.full((30, 1, 4, 4), 2.0), torch.zeros(30).long(), ["z"], name="others")
    mixed, replaced = replace_images(data, others, rate=0.25, seed=0)
    assert int(replaced.sum()) == 10
    assert torch.equal(mixed.labels, data.labels)
    assert torch.equal((mixed.inputs == 2).flatten(1).all(1), replaced)  # type: ignore[union-attr, operator]
    assert torch.equal(mixed.truth == NO_LABEL, replaced)  # type: ignore[arg-type]
    assert float(data.inputs.max()) < 1  # type: ignore[union-attr]
    with pytest.raises(DataError, match="others has 30 images, 40 are needed: lower the rate"):
        replace_images(data, others, rate=1.0, seed=0)
    wide = Examples(torch.rand(4, 3, 4, 4), torch.arange(4) % 2, ["a", "b"])
    with pytest.raises(DataError, match=r"digits has inputs \(1, 4, 4\), data \(3, 4, 4\): they must have the same shape"):
        add_noise(wide, {"name": "open_set", "rate": 0.2, "source": "digits"}, 0)
    shaped = Examples(torch.zeros(6, 1, 8, 8, dtype=torch.uint8), torch.arange(6) % 2, ["a", "b"])
    assert int((add_noise(shaped, {"name": "open_set", "rate": 0.5, "source": "digits"}, 0).truth == NO_LABEL).sum()) == 3  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"name": "fog"}, f"unknown noise 'fog'; known: {', '.join(NOISES)}"),
        ({"rate": 0.2}, "a noise needs a name"),
        ({"name": "symmetric"}, "its fields: rate, exact"),
        ({"name": "symmetric", "rate": 1.2}, r"rate must be between 0 and 1, got 1\.2"),
        ({"name": "symmetric", "rato": 0.2}, "symmetric has no field 'rato'; its fields: rate, exact"),
        ({"name": "asymmetric", "rate": 0.2}, "asymmetric noise needs either groups or to"),
        ({"name": "asymmetric", "rate": 0.2, "groups": "mars"}, "groups: unknown name 'mars'; known: cifar100"),
        ({"name": "asymmetric", "rate": 0.2, "to": "mars"}, "to: unknown name 'mars'; known: cifar10, mnist"),
        ({"name": "asymmetric", "rate": 0.2, "groups": [["a", "q"]]}, "unknown class 'q'; known: a, b, c, d"),
        ({"name": "asymmetric", "rate": 0.2, "groups": [["a", "b"], ["a"]]}, "groups: class 0 occurs twice"),
    ],
)
def test_invalid_specs(spec: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        add_noise(examples(), spec, 0)


def test_labels_outside_the_classes() -> None:
    with pytest.raises(ValueError, match=r"labels must lie in 0\.\.4, got 0 to 9"):
        symmetric_noise(LABELS, rate=0.1, num_classes=5, seed=0)
    with pytest.raises(ValueError, match="num_classes must be at least 2 for a label to be wrong, got 1"):
        symmetric_noise(LABELS * 0, rate=0.1, num_classes=1, seed=0)
    with pytest.raises(ValueError, match=r"to: 0 -> 12 is outside 0\.\.9"):
        map_noise(LABELS, rate=0.1, to={0: 12}, num_classes=10, seed=0)
    assert len(symmetric_noise(LABELS[:0], rate=0.1, num_classes=5, seed=0)) == 0
