"""Training: it learns, it resumes to the same weights, and it says what stopped it."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from mohs._core.errors import RunError
from mohs._core.watch import UNWATCHED
from mohs.data.examples import Data, Examples
from mohs.train.directory import RunDirectory
from mohs.train.loop import steps, train
from mohs.train.run import Run
from mohs.train.start import started
from mohs.train.trained import Trained, load_run

SMALL: dict[str, Any] = {
    "data": "blobs",
    "model": "mlp:hidden=16",
    "epochs": 4,
    "batch": 32,
    "optimizer": "sgd:lr=0.1",
    "augment": [],
}
EVERYTHING: dict[str, Any] = SMALL | {
    "model": "mlp:hidden=16,dropout=0.2",
    "loss": "online_smoothing",
    "regularizers": [
        "adr:weight=0.05,tau=2",
        {"name": "amc", "weight": {"name": "ramp_up", "epochs": 2, "peak": 0.1}},
        "center:weight=0.01",
    ],
    "optimizer": "adamw:lr=0.01",
    "ema": 0.9,
    "trace": True,
    "noise": "symmetric:rate=0.1",
}


def weights(trained: Trained) -> dict[str, torch.Tensor]:
    return trained.network.state_dict()


def assert_same(a: Trained, b: Trained) -> None:
    for (name, one), other in zip(weights(a).items(), weights(b).values(), strict=True):
        assert torch.equal(one, other), name
    assert a.table.equals(b.table)
    strip = lambda lines: [{k: v for k, v in line.items() if k != "seconds"} for line in lines]
    assert strip(a.history) == strip(b.history)


def test_training_learns_and_writes_a_complete_run(blobs: Data, tmp_path: Path) -> None:
    done = train(Run(**SMALL), blobs, runs=tmp_path)
    assert done.history[-1]["test_accuracy"] > 0.9
    assert [line["epoch"] for line in done.history] == [0, 1, 2, 3]
    files = {path.name for path in done.folder.iterdir()}
    assert files == {".lock", "DONE", "checksums.json", "run.json", "metrics.jsonl", "model.safetensors", "dynamics.parquet"}
    about = json.loads((done.folder / "run.json").read_text())
    assert about["run"]["model"] == {"name": "mlp", "hidden": 16}
    assert about["versions"]["torch"]
    assert about["data"]["examples"] == {"train": 108, "val": 12, "test": 30}
    assert done.folder.name.endswith(about["hash"])
    assert set(done.table.column_names) >= {"id", "label", "aum", "mean_confidence"}
    assert set(done.table.column("label").to_pylist()) == {"a", "b", "c"}
    assert_same(done, load_run(done.folder))


def test_a_finished_run_is_only_read(blobs: Data, tmp_path: Path) -> None:
    first = train(Run(**SMALL), blobs, runs=tmp_path)
    told: list[Any] = []
    again = train(Run(**SMALL), blobs, runs=tmp_path, watch=told.append)
    assert told == []
    assert_same(first, again)


class Stop(Exception):  # noqa: N818
    """The run is stopped from outside."""


def test_an_interrupted_run_resumes_to_the_same_result(blobs: Data, tmp_path: Path) -> None:
    whole = train(Run(**EVERYTHING), blobs, runs=tmp_path / "whole")
    chance = random.Random(0)
    stops = 0
    for _ in range(30):
        left = chance.randint(1, 12)

        def watch(event: dict[str, Any]) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise Stop

        try:
            done = train(Run(**EVERYTHING), blobs, runs=tmp_path / "stopped", watch=watch)
            break
        except Stop:
            stops += 1
    assert stops >= 2
    assert_same(whole, done)
    assert all(torch.equal(a.nan_to_num(), done.trace[name].nan_to_num()) for name, a in whole.trace.items())


KILLED_RUN = """
from mohs.data.examples import Data
from mohs.data.readers.digits import digits
from mohs.train.run import Run
import torch
RUN = Run(data="digits", model="cnn", epochs=3, batch=64, ema=0.9, seed=5, noise="symmetric:rate=0.1", optimizer="adam:lr=0.003")
def data():
    return Data(digits().train.take(torch.arange(600)))
"""
KILLED = f"""{KILLED_RUN}
import os, signal
from mohs.train.loop import train
torch.set_num_threads(threads)
def tick(*event):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
sync, watch = os.fsync, tick
if where == "writing":
    watch = lambda event: None
    os.fsync = lambda file: (tick(), sync(file))
train(RUN, data(), out=folder, device="cpu", watch=watch)
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Trained]:
    """The names of KILLED_RUN, and its run without a kill."""
    made: dict[str, Any] = {}
    exec(KILLED_RUN, made)
    return made, train(made["RUN"], made["data"](), out=tmp_path_factory.mktemp("run") / "whole", device="cpu")


@pytest.mark.slow
@pytest.mark.parametrize(("where", "seed"), [("a step", 0), ("a step", 1), ("a step", 2), ("writing", 3)])
def test_killed_at_a_random_step_resumes_to_identical_weights(
    where: str, seed: int, whole: tuple[dict[str, Any], Trained], run_forked: Callable[..., int], tmp_path: Path
) -> None:
    """27 steps and epochs' ends, 11 writes: run.json, then checkpoint and metrics of each epoch, weights, dynamics, DONE."""
    made, done = whole
    chance, folder, kills = random.Random(seed), tmp_path / "killed", 0
    for _ in range(2):
        left = chance.randint(1, 27 if where == "a step" else 8)
        code = run_forked(KILLED, threads=torch.get_num_threads(), where=where, left=left, folder=folder)
        kills += code == -signal.SIGKILL
    assert kills >= 1
    assert_same(done, train(made["RUN"], made["data"](), out=folder, device="cpu"))


def test_parts_of_a_batch_change_nothing(blobs: Data, tmp_path: Path) -> None:
    whole = train(Run(**SMALL), blobs, runs=tmp_path)
    parts = train(Run(**SMALL, accumulate=4), blobs, runs=tmp_path)
    for a, b in zip(weights(whole).values(), weights(parts).values(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)


def test_deferred_class_weights_and_counts_come_from_the_data(blobs: Data, tmp_path: Path) -> None:
    tail = SMALL | {"long_tail": 5.0, "class_weight": "deferred:start=2", "loss": "ldam"}
    done = train(Run(**tail), blobs, runs=tmp_path)
    counts = [done.table.column("label").to_pylist().count(c) for c in "abc"]
    assert counts[0] > counts[1] > counts[2]


def test_the_folder_of_another_run_is_refused(blobs: Data, tmp_path: Path) -> None:
    train(Run(**SMALL), blobs, out=tmp_path / "run")
    with pytest.raises(RunError, match="holds another run"):
        train(Run(**SMALL, seed=1), blobs, out=tmp_path / "run")
    other = dataclasses.replace(blobs.train, labels=blobs.train.labels.roll(1))
    with pytest.raises(RunError, match="holds another run"):
        train(Run(**SMALL), Data(other, None, blobs.test), out=tmp_path / "run")


def test_a_loss_that_is_not_finite_stops_and_leaves_the_run_resumable(blobs: Data, tmp_path: Path) -> None:
    wild = SMALL | {"optimizer": "sgd:lr=1e30", "epochs": 3}
    with pytest.raises(RunError, match=r"the loss became (nan|inf) in epoch 0; .* a lower learning rate"):
        train(Run(**wild), blobs, out=tmp_path / "run")
    assert not (tmp_path / "run" / "DONE").exists()
    with pytest.raises(RunError, match="the loss became"):
        train(Run(**wild), blobs, out=tmp_path / "run")


def test_a_full_disk_stops_and_leaves_the_run_resumable(blobs: Data, tmp_path: Path) -> None:
    """A limit on the size of files stands for the full disk: writing fails in the same place, with the same kind of error."""
    import resource

    whole = train(Run(**SMALL), blobs, out=tmp_path / "whole")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    left = 5

    def watch(event: dict[str, Any]) -> None:
        nonlocal left
        left -= "seconds" in event
        if event["epoch"] == 1 and "step" in event:
            while not (tmp_path / "full" / "checkpoint.safetensors").exists():  # of epoch 0, which a thread writes
                time.sleep(0.001)
            resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))

    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with pytest.raises(RunError, match=r"epoch 1 could not be written .*free some space and run the same command again"):
            train(Run(**SMALL), blobs, out=tmp_path / "full", watch=watch)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, old)
    assert not [path for path in (tmp_path / "full").iterdir() if path.name.endswith(".part")]
    assert_same(whole, train(Run(**SMALL), blobs, out=tmp_path / "full"))


def test_a_missing_file_stops_the_run_which_resumes_once_it_is_restored(tmp_path: Path) -> None:
    from PIL import Image

    from mohs.data.readers.folder import folder

    generator = torch.Generator().manual_seed(0)
    for label in ("light", "dark"):
        (tmp_path / "photos" / label).mkdir(parents=True)
        for i in range(20):
            pixels = torch.randint(0, 80, (8, 8), generator=generator) + (150 if label == "light" else 0)
            Image.fromarray(pixels.to(torch.uint8).numpy()).save(tmp_path / "photos" / label / f"{i}.png")
    read = lambda: folder(tmp_path / "photos", memory_limit=0)  # each image is read when its batch comes
    run = Run(data="photos", model="cnn:width=4", epochs=3, batch=8, validation=0.0, augment=[])
    whole = train(run, read(), out=tmp_path / "whole")
    lost = tmp_path / "photos" / "dark" / "7.png"

    def watch(event: dict[str, Any]) -> None:
        if event["epoch"] == 1 and lost.exists():
            lost.rename(tmp_path / "7.png")

    with pytest.raises((ValueError, OSError), match=r"7\.png"):
        train(run, read(), out=tmp_path / "run", watch=watch)
    (tmp_path / "7.png").rename(lost)
    assert_same(whole, train(run, read(), out=tmp_path / "run"))


def test_a_missing_tracker_is_an_error_before_training(blobs: Data, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="tracker 'abacus' is unknown or not installed"):
        train(Run(**SMALL), blobs, out=tmp_path / "run", trackers=("abacus",))


def test_digits_are_learned(tmp_path: Path) -> None:
    from mohs.data.readers.digits import digits

    done = train(Run(data="digits", epochs=12, validation=0.2), digits(), runs=tmp_path, device="cpu")
    assert done.history[-1]["val_accuracy"] >= 0.97


def test_one_class_is_an_error_before_any_training(tmp_path: Path) -> None:
    alone = Examples(torch.randn(10, 4), torch.zeros(10, dtype=torch.long), ["only"], name="x")
    with pytest.raises(ValueError, match="class"):
        train(Run(**SMALL), Data(alone), runs=tmp_path)
    assert not list(tmp_path.iterdir())


def test_unknown_pieces_are_named_before_any_training(blobs: Data, tmp_path: Path) -> None:
    for change, message in (
        ({"loss": "gcee"}, "unknown loss 'gcee'"),
        ({"optimizer": "sgdd"}, "unknown optimizer 'sgdd'"),
        ({"schedule": "cosin"}, "unknown learning-rate schedule 'cosin'"),
        ({"model": "resnet21"}, "unknown model 'resnet21'"),
        ({"head": "arcfaces"}, "unknown head"),
        ({"regularizers": ["adr"]}, "needs a weight"),
    ):
        with pytest.raises(ValueError, match=message):
            train(Run(**(SMALL | change)), blobs, runs=tmp_path)


def test_environment_is_unchanged(blobs: Data, tmp_path: Path) -> None:
    before = dict(os.environ)
    train(Run(**SMALL | {"epochs": 1}), blobs, runs=tmp_path)
    assert dict(os.environ) == before


def test_checkpoints_may_be_less_frequent_than_epochs(blobs: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    monkeypatch.setattr(RunDirectory, "save_checkpoint", lambda self, tree: written.append(tree["epoch"]))
    for save_every, epochs in ((0.0, [1, 2, 3, 4]), (1000.0, [])):
        with started(Run(**SMALL), blobs, runs=tmp_path / str(save_every), out=None, device="cpu") as (job, directory):
            assert job is not None
            for _ in steps(job, directory, UNWATCHED, save_every=save_every):
                pass
        assert written == epochs
        written.clear()
        assert len(directory.metrics()) == 4
