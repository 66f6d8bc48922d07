"""A run as values: specs, hashes, files and errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mohs.train.run import Run, read_run, run_from


def test_words_and_mappings_are_the_same_run() -> None:
    words = Run(loss="gce:q=0.5", regularizers=["adr:weight=0.05,tau=3"], model="mlp:hidden=[64, 32]")
    maps = Run(
        loss={"name": "gce", "q": 0.5},
        regularizers=[{"name": "adr", "weight": 0.05, "tau": 3}],
        model={"name": "mlp", "hidden": [64, 32]},
    )
    assert words == maps
    assert words.hash("data") == maps.hash("data")
    assert words.hash("data") != words.hash("other data")
    assert words.hash("data") != Run(loss="gce:q=0.6").hash("data")


def test_every_setting_changes_the_hash() -> None:
    runs = [Run(), Run(seed=1), Run(seed=1, noise_seed=0), Run(validation=0.0), Run(epochs=0), Run(record=False), Run(augment=[])]
    hashes = [run.hash("data") for run in runs]
    assert len(set(hashes[:6])) == 6
    assert Run(trace=False, ema=None).hash("data") == hashes[0]


def test_a_run_is_loaded_from_its_files(tmp_path: Path) -> None:
    run = Run(loss="gce", epochs=3, augment=[], noise="symmetric:rate=0.2", ema=0.9)
    (tmp_path / "run.json").write_text(json.dumps({"run": run.plain()}))
    assert read_run(tmp_path / "run.json") == run
    (tmp_path / "run.toml").write_text(
        'loss = "gce"\nepochs = 3\naugment = []\nema = 0.9\n[noise]\nname = "symmetric"\nrate = 0.2\n'
    )
    assert read_run(tmp_path / "run.toml") == run


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lose": "gce"}, "unknown setting 'lose'; known: data, noise"),
        ({"epochs": -1}, "epochs must be an integer of at least 0, got -1"),
        ({"epochs": 1.5}, "epochs must be an integer"),
        ({"batch": 0}, "batch must be an integer of at least 1"),
        ({"accumulate": 9, "batch": 8}, "accumulate=9 is larger than the batch size 8"),
        ({"validation": 1.0}, "validation must be"),
        ({"precision": "int4"}, "precision must be"),
        ({"regularizers": "adr"}, "regularizers must be a list of specs"),
    ],
)
def test_a_bad_setting_is_named(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run_from(settings)


def test_a_file_that_is_not_a_run_is_named(tmp_path: Path) -> None:
    file = tmp_path / "broken.toml"
    file.write_text("loss = ")
    with pytest.raises(ValueError, match=r"broken.toml does not hold the settings of a run"):
        read_run(file)


def test_the_folder_name_is_safe() -> None:
    assert "/" not in Run(data="../a b/<i>é.csv", model="torchvision:resnet18").name()
