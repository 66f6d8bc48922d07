"""An audit by a network that was trained before: on other examples, on these very ones, and on what it cannot read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from mohs._core.errors import DataError
from mohs.audit.judge_run import matched
from mohs.audit.pipeline import demonstration, run_audit
from mohs.data.examples import Data, Examples
from mohs.data.open_data import open_data
from mohs.train.loop import train
from mohs.train.run import Run
from mohs.train.trained import Trained


@pytest.fixture(scope="module")
def halves() -> tuple[Examples, Examples]:
    data = demonstration(0).train
    return data.take(torch.arange(0, 900)), data.take(torch.arange(900, len(data)))


@pytest.fixture(scope="module")
def trained(halves: tuple[Examples, Examples], tmp_path_factory: pytest.TempPathFactory) -> Trained:
    run = Run(model="cnn", loss="gce:q=0.7", epochs=12, batch=32, validation=0.0)
    return train(run, Data(halves[0]), out=tmp_path_factory.mktemp("run"), device="cpu")


def test_wrong_labels_among_other_examples_are_found(halves: tuple[Examples, Examples], trained: Trained, tmp_path: Path) -> None:
    done = run_audit(halves[1], run=trained.folder, out=tmp_path, device="cpu")
    facts = done.facts
    assert facts["flagged and wrong"] / facts["flagged"] >= 0.8
    assert facts["flagged and wrong"] / facts["labels made wrong"] >= 0.8
    assert "aum" not in done.table.column_names
    assert done.chosen == "gce:q=0.7"
    assert "caution" not in facts
    assert done.held_out is not None


def test_scores_on_training_examples_are_reported(halves: tuple[Examples, Examples], trained: Trained, tmp_path: Path) -> None:
    done = run_audit(halves[0], run=trained.folder, out=tmp_path, device="cpu")
    assert "trained on these very examples" in done.facts["caution"]
    assert done.held_out is None


def test_classes_are_matched_by_name(halves: tuple[Examples, Examples], trained: Trained) -> None:
    some = halves[1].take((halves[1].labels > 6).nonzero().squeeze(1))
    fewer = replace(some, labels=some.labels - 7, classes=["7", "8", "9"])
    assert torch.equal(matched(fewer, trained).labels, some.labels)


def test_inputs_that_a_network_cannot_take(halves: tuple[Examples, Examples], trained: Trained, tmp_path: Path) -> None:
    larger = Examples(torch.zeros(4, 1, 9, 9, dtype=torch.uint8), torch.tensor([0, 1, 0, 1]), [0, 1])
    with pytest.raises(DataError, match=r"inputs are 1 × 9 × 9, but .* takes 1 × 8 × 8: pass image_size=8"):
        run_audit(larger, run=trained.folder, out=tmp_path / "a")
    with pytest.raises(DataError, match=r"features, but .* was trained on images$"):
        run_audit((np.ones((4, 5)), [0, 1, 0, 1]), run=trained.folder, out=tmp_path / "b")
    with pytest.raises(DataError, match="does not know the class 'cat'; it knows 0, 1, 2"):
        run_audit(replace(halves[1], classes=["cat", *range(1, 10)]), run=trained.folder, out=tmp_path / "c")
    with pytest.raises(DataError, match="does not hold a run"):
        run_audit(halves[1], run=tmp_path / "nowhere", out=tmp_path / "d")


@pytest.mark.parametrize("kind", ["text", "table"])
def test_a_run_on_features_judges_other_texts_and_rows(tmp_path: Path, kind: str) -> None:
    random = np.random.default_rng(0)
    words = (["wave", "boat", "fish", "tide"], ["rock", "goat", "snow", "path"])
    true = np.arange(240) % 2
    texts = [" ".join(random.choice(words[one], 8)) for one in true]
    columns = {"place": [text.split()[0] for text in texts], "size": random.normal(size=240)}
    inputs = texts if kind == "text" else pa.table(columns)
    given = np.where(np.arange(240) % 12 == 5, 1 - true, true)
    whole = open_data((inputs, np.array(["sea", "hill"])[given])).train
    places = torch.arange(240)
    how = Run(embed="tfidf" if kind == "text" else None, loss="gce", epochs=40, validation=0.0)
    run = train(how, Data(whole.take(places[:120])), out=tmp_path / "run", device="cpu")
    done = run_audit(whole.take(places[120:]), run=run.folder, out=tmp_path / "audit", device="cpu")
    flagged = np.array(done.table.column("verdict").to_pylist()) == "mislabeled"
    wrong = (given != true)[120:]
    assert wrong[flagged].mean() > 0.8
    assert (flagged & wrong).sum() >= 6
    with pytest.raises(DataError, match=rf"features, but .* was trained on {kind}"):
        run_audit(Examples(torch.rand(40, 3), torch.arange(40) % 2, ["hill", "sea"]), run=run.folder, out=tmp_path / "b")
