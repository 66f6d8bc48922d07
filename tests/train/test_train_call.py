"""`mohs.train` as a user calls it: a run or a word, paths as text, and what comes back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

import mohs
from mohs.data.examples import Data
from mohs.train.directory import RunDirectory
from mohs.train.run import run_with
from mohs.train.trace import load_test_traces

SMALL = {"model": "mlp:hidden=16", "epochs": 2, "batch": 32, "optimizer": "sgd:lr=0.1"}


def test_a_spec_with_settings_gives_the_run_it_names(tmp_path: Path) -> None:
    short = mohs.train("digits", loss="gce:q=0.7", out=str(tmp_path / "short"), device="cpu", **SMALL)
    run = mohs.Run(data="digits", loss={"name": "gce", "q": 0.7}, **SMALL)
    long = mohs.train(run, runs=str(tmp_path), device="cpu")
    assert RunDirectory(short.folder).about["hash"] == RunDirectory(long.folder).about["hash"]
    changed = mohs.train(mohs.Run(**SMALL), loss="gce:q=0.7", runs=tmp_path, device="cpu")
    assert changed.folder == long.folder  # the same run: only read
    with pytest.raises(ValueError, match="train: unknown setting 'epoch'; known: data, noise"):
        mohs.train("digits", epoch=3)
    with pytest.raises(ValueError, match="the first must be a Run, got str"):
        mohs.train("digits", "mnist")


def test_data_of_any_kind_and_text_for_paths(blobs: Data, tmp_path: Path) -> None:
    given = mohs.train(blobs, out=str(tmp_path / "a"), trace_test=True, device="cpu", **SMALL)
    assert given.run.data == "blobs"
    arrays = (blobs.train.inputs.numpy(), blobs.train.labels.numpy())
    again = mohs.train(mohs.Run(**SMALL), arrays, out=str(tmp_path / "b"), device="cpu")
    assert again.history[-1]["accuracy"] > 0.8
    loaded = mohs.load_run(str(tmp_path / "a"))
    assert loaded.history == given.history
    assert sorted(load_test_traces(str(tmp_path / "a"))) == [1, 2]
    many = mohs.train_many([mohs.Run(**SMALL, seed=seed) for seed in range(2)], blobs, folder=str(tmp_path), device="cpu")
    assert [one.folder.parent for one in many] == [tmp_path] * 2


def test_the_folder_of_the_data_is_no_run_folder(blobs: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(8):
        (tmp_path / "photos" / "ab"[i % 2]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 8), 30 * i, np.uint8)).save(tmp_path / "photos" / "ab"[i % 2] / f"{i}.png")
    with pytest.raises(ValueError, match=r"out \(--out\) is the folder of the data, .*photos: give another folder"):
        mohs.train(str(tmp_path / "photos"), out=tmp_path / "photos", device="cpu", **SMALL)
    assert sorted(one.name for one in (tmp_path / "photos").iterdir()) == ["a", "b"]
    monkeypatch.chdir(tmp_path)
    for _ in range(2):  # a run may have the name of its data
        assert mohs.train(blobs, out="blobs", device="cpu", **SMALL).folder == Path("blobs")


@pytest.mark.parametrize("frame", [True, False])
def test_options_of_opening_the_data(frame: bool, tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(80, 2))
    rows = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "side": np.where(x.sum(1) > 0, "up", "down"), "label": ["u", "v"] * 40})
    rows.to_csv(tmp_path / "rows.csv", index=False)
    data = rows.drop(columns="label") if frame else tmp_path / "rows.csv"
    trained = mohs.train(data, label="side", out=tmp_path / "run", device="cpu", **SMALL)
    assert (trained.classes, dict(trained.run.open)["label"]) == (["down", "up"], "side")
    assert mohs.train(mohs.Run(**SMALL), data, label="side", out=tmp_path / "b", device="cpu").classes == ["down", "up"]
    with pytest.raises(mohs.DataError, match="no column 'sides'; its columns: a, b"):
        mohs.train(data, label="sides", **SMALL)
    with pytest.raises(ValueError, match=r"^label must be text or None, got 3"):
        mohs.train(data, label=3, **SMALL)
    with pytest.raises(ValueError, match="label is given twice, as an argument and in open"):
        mohs.train(data, label="side", open={"label": "side"}, **SMALL)


def test_what_comes_back_is_shown_in_a_line(blobs: Data, tmp_path: Path) -> None:
    trained = mohs.train(blobs, out=tmp_path / "<b>", device="cpu", **SMALL)
    text = repr(trained)
    assert len(text) < 300
    assert text.startswith(f"Trained('{tmp_path}/<b>', data=blobs, model=mlp, loss=cross_entropy, epochs=2, accuracy=0.")
    page = trained._repr_html_()
    assert "&lt;b&gt;" in page
    assert "<b>" not in page
    assert "val_accuracy" in page
    assert len(trained.to_pandas()) == trained.table.num_rows
    bare = mohs.train(blobs, out=tmp_path / "bare", record=False, device="cpu", **SMALL)
    with pytest.raises(mohs.DataError, match="train with record=True"):
        bare.to_pandas()


def test_settings_over_a_file(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('loss = "gce"\nepochs = 7\n')
    run = run_with(str(file), epochs=3, model=None)
    assert (run.loss, run.epochs) == ({"name": "gce"}, 3)
    assert run.model == mohs.Run().model


@pytest.mark.parametrize("head", ["cosface:margin=0.3", "arcface:margin=0.3", "sphereface", "normface"])
def test_the_record_holds_logits_without_the_margin(head: str, blobs: Data, tmp_path: Path) -> None:
    """One batch an epoch and a learning rate of almost 0: what is recorded is what the network predicts."""
    still = {"optimizer": "sgd:lr=1e-30,weight_decay=0.0", "batch": 1024, "validation": 0.0, "augment": [], "trace": True}
    trained = mohs.train(blobs, head=head, out=tmp_path / "run", device="cpu", **(SMALL | still))
    logits = trained.network(blobs.train.inputs)
    expected = mohs.margin(logits, blobs.train.labels)
    recorded = torch.from_numpy(trained.table.column("margin").to_numpy().copy())
    torch.testing.assert_close(recorded, expected.detach(), rtol=1e-4, atol=1e-4, check_dtype=False)
    accuracy = (logits.argmax(1) == blobs.train.labels).double().mean().item()
    assert trained.history[-1]["accuracy"] == pytest.approx(accuracy, abs=1e-6)
    torch.testing.assert_close(trained.trace["confidence"][-1].float(), expected.sigmoid().detach(), rtol=1e-2, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("head", [*mohs.HEADS])
def test_clean_digits_are_not_called_mislabeled_with_any_head(head: str, tmp_path: Path) -> None:
    spec = f"{head}:strength=0.17" if head in ("sphereface", "lsoftmax") else head  # at full strength these do not train
    options = {"model": "mlp:hidden=64", "optimizer": "sgd:lr=0.05", "epochs": 20}
    trained = mohs.train("digits", head=spec, out=tmp_path / "run", device="cpu", **options)
    assert trained.metrics["accuracy"] > 0.95
    flagged = mohs.verdict(trained.table).column("verdict").to_pylist().count("mislabeled")
    assert flagged <= 0.02 * trained.table.num_rows
