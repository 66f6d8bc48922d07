"""Studies of new domains: a domain left out, and self-training measured on a source network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from mohs.studies.collect import by_seed
from mohs.studies.recipe import read_recipe
from mohs.studies.run_study import run_study
from mohs.train.run_data import opened, pair_of, with_test

Write = Callable[..., Path]
PAIR = (('data = "digits"', 'data = "digits->digits:rotate=30"'), ("limit = 12", "limit = 40"), ("seeds = 2", "seeds = 1"))
ROUNDS = """
[[measure]]
name = "self_training"
label = "angle"
selection = "cbst_avh"
rounds = 2
epochs = 1
[[measure]]
name = "self_training"
label = "all"
selection = "confidence"
rounds = 1
epochs = 1
portion = [1.0, 0.0, 1.0]
"""


METHODS = ("mmd", "dann", "entropy")
ALIGNED = "".join(
    f'\n[[measure]]\nname = "alignment"\nlabel = "{method}"\nmethod = "{method}"\nepochs = 2\n' for method in METHODS
)


def test_without_holds_out_a_domain_as_the_test_set(written: Write) -> None:
    two = ('data = "digits"', 'data = "digits+digits:invert"')
    run = read_recipe(written(two, ("limit = 12", 'limit = 12, without = "digits:invert"'))).rows[0].run
    data = opened(with_test(run))
    assert data.test is not None
    assert (len(data.train), len(data.test)) == (120, 120)
    assert data.test.inputs.float().mean() > data.train.inputs.float().mean()


def test_train_limit_keeps_the_whole_test_set(written: Write) -> None:
    run = read_recipe(written(*PAIR[:1], ("limit = 12", "train_limit = 12"))).rows[0].run
    source, target = pair_of(run)
    data = opened(run)
    assert data.test is not None
    assert torch.equal(source.train.inputs, data.train.inputs)
    assert (len(source.train), len(target.train)) == (120, 120)
    assert len(data.test) > 800  # half of all digits


def test_self_training_starts_from_the_source_network(written: Write, tmp_path: Path) -> None:
    recipe = read_recipe(written(*PAIR, ("validation = 0.0", "validation = 0.25"), more=ROUNDS))
    results = run_study(recipe, runs=tmp_path, device="cpu")
    for row in ("CE", "GCE"):
        one = next(result for result in results if result["row"] == row)
        assert one["angle_accuracy_round_0"] == one["all_accuracy_round_0"] == one["test_accuracy"]
        assert one["angle_accuracy"] == one["angle_accuracy_round_2"]
        assert 0 < one["angle_first_selected"] < one["angle_last_selected"] < one["all_first_selected"] == 400
        assert 0 <= one["angle_first_true"] <= 1
        assert "angle_source_accuracy" in one  # there is a held-out part of the source
    assert by_seed(results, "CE", "angle_accuracy").keys() == {0}


def test_alignment_is_measured_beside_the_source_network(written: Write, tmp_path: Path) -> None:
    changes = (*PAIR, ("validation = 0.0", "validation = 0.25"))
    plain, aligned = (run_study(read_recipe(written(*changes, more=more)), runs=tmp_path, device="cpu") for more in ("", ALIGNED))
    for before, one in zip(plain, aligned, strict=True):
        assert (one["run"], one["test_accuracy"]) == (before["run"], before["test_accuracy"])
        found = [one[f"{method}_accuracy"] for method in METHODS]
        assert len(set(found)) > 1
        assert all(0 < value < 1 for value in found)
