"""Comparisons: by example against a loop and the exact test, by seed against the statistics they rest on."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from mohs._core.checksums import list_file
from mohs._core.errors import DataError
from mohs.data.open_data import open_data
from mohs.evaluate.mcnemar import paired_by_example
from mohs.evaluate.statistics import paired, summary
from mohs.studies.compare import compare_runs, compare_settings
from mohs.train.loop import train
from mohs.train.run import Run

SMALL = {"data": "digits", "model": "cnn:width=4", "epochs": 6, "batch": 16, "record": False, "open": {"limit": 30}}


def test_two_classifiers_by_example() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.random(400) < 0.8, rng.random(400) < 0.7
    found = paired_by_example(a, b)
    only_a = sum(1 for x, y in zip(a, b, strict=True) if x and not y)
    only_b = sum(1 for x, y in zip(a, b, strict=True) if y and not x)
    assert (found.only_a, found.only_b, found.n) == (only_a, only_b, 400)
    assert found.difference == pytest.approx(found.accuracy_a - found.accuracy_b)
    n, k = only_a + only_b, min(only_a, only_b)
    assert found.p == pytest.approx(min(1.0, 2 * sum(math.comb(n, i) for i in range(k + 1)) / 2**n))
    drawn = [(a[rows].mean() - b[rows].mean()) for rows in rng.integers(0, 400, (4000, 400))]
    assert found.low == pytest.approx(np.quantile(drawn, 0.025), abs=0.01)
    assert found.high == pytest.approx(np.quantile(drawn, 0.975), abs=0.01)


def test_equal_sides_and_bad_ones() -> None:
    same = paired_by_example([True, False], [True, False])
    assert (same.difference, same.low, same.high, same.p) == (0.0, 0.0, 0.0, 1.0)
    with pytest.raises(ValueError, match="must have the same shape"):
        paired_by_example([True], [True, False])


def test_two_runs_on_shared_held_out_examples(tmp_path: Path) -> None:
    one, other = (train(Run(data="digits", model=f"cnn:width={w}", epochs=1), open_data("digits"), runs=tmp_path) for w in (2, 4))
    found = compare_runs(one.folder, other.folder)
    assert (found.on, found.n) == ("validation", 180)
    assert found.accuracy_a == pytest.approx(one.history[-1]["val_accuracy"], abs=1e-6)
    assert found.accuracy_b == pytest.approx(other.history[-1]["val_accuracy"], abs=1e-6)
    shifted = train(Run(data="digits", model="cnn:width=2", epochs=1, seed=1), open_data("digits"), runs=tmp_path)
    with pytest.raises(DataError, match=r"hold out different examples.*mohs apply AUDIT decisions\.csv --retrain"):
        compare_runs(one.folder, shifted.folder)
    bare = train(Run(data="digits", model="cnn:width=2", epochs=1, validation=0.0), open_data("digits"), runs=tmp_path)
    with pytest.raises(DataError, match="holds out no examples"):
        compare_runs(bare.folder, one.folder)
    about = one.folder / "run.json"
    about.write_text(about.read_text().replace('"fingerprint": "', '"fingerprint": "0'))
    list_file(about)
    with pytest.raises(DataError, match="have changed since this run"):
        compare_runs(one.folder, other.folder)
    with pytest.raises(DataError, match="does not hold a run"):
        compare_runs(tmp_path / "none", one.folder)


def test_settings_on_equal_budgets(tmp_path: Path) -> None:
    settings = {"ce": Run(**SMALL), "gce": Run(**SMALL, loss="gce"), "wild": Run(**SMALL, optimizer="sgd:lr=1e30")}
    ce, gce, wild = compare_settings(settings, seeds=3, runs=tmp_path, device="cpu")
    assert list(ce.values) == [0, 1, 2]
    found = summary(list(ce.values.values()))
    assert (ce.n, ce.mean, ce.sd, ce.verdict, ce.failed) == (3, found.mean, found.sd, "", 0)
    test = paired([gce.values[s] for s in range(3)], [ce.values[s] for s in range(3)])
    assert (gce.difference, gce.difference_low, gce.p) == pytest.approx((test.difference, test.low, test.p))
    assert gce.verdict in ("better", "worse", "draw")
    assert (wild.n, wild.failed, math.isnan(wild.mean)) == (0, 3, True)


def test_a_single_setting_is_an_error() -> None:
    with pytest.raises(ValueError, match="a comparison needs at least two settings, got ce"):
        compare_settings({"ce": Run(**SMALL)})
    with pytest.raises(ValueError, match="seeds must be between 1 and 10000, got 0"):
        compare_settings({"a": Run(**SMALL), "b": Run(**SMALL, loss="mae")}, seeds=0)
