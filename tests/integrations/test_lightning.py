"""The Lightning callback in a real Trainer on the CPU: it records what a plain loop would, and its checkpoints go on."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

import mohs
from mohs.data.with_ids import WithIds
from mohs.hardness.recorder import Recorder

lightning = pytest.importorskip("lightning", reason="lightning is not installed (the lightning extra)")
shell = import_module("mohs.integrations.lightning")
RecorderCallback, EndEpochCallback, step_parts = shell.RecorderCallback, shell.EndEpochCallback, shell.step_parts
pytestmark = [
    pytest.mark.filterwarnings(r"ignore:.isinstance\(treespec, LeafSpec\). is deprecated"),  # lightning's own, newer torch
    pytest.mark.filterwarnings("ignore:The 'train_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:The number of training batches"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty"),
]

N, CLASSES = 22, 3


def examples() -> list[tuple[torch.Tensor, int]]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(CLASSES, (N,), generator=generator).tolist()
    return [(torch.randn(4, generator=generator), label) for label in labels]


class Net(lightning.LightningModule):
    """A linear model; `log` keeps, in plain sight, what each step saw. `gives` is what training_step returns beside the loss."""

    def __init__(self, gives: tuple[str, ...] = ("logits", "labels", "ids")) -> None:
        super().__init__()
        self.head = nn.Linear(4, CLASSES)
        self.gives, self.log_of_steps = gives, []

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        inputs, labels, ids = batch.values() if isinstance(batch, dict) else batch
        logits = self.head(inputs)
        loss = cross_entropy(logits, labels)
        self.log_of_steps.append((self.current_epoch, ids, logits.detach().clone(), labels, inputs))
        parts = {"logits": logits, "labels": labels, "ids": ids, "features": inputs}
        return {"loss": loss, **{name: parts[name] for name in self.gives}} if self.gives else loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.5)


def fit(net: Net, recorder: Recorder, folder: Path, *, epochs: int = 3, data: Any = None, resume: Any = None) -> RecorderCallback:
    callback = RecorderCallback(recorder)
    trainer = lightning.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        callbacks=[callback],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    trainer.fit(net, DataLoader(data or WithIds(examples()), batch_size=8, shuffle=True), ckpt_path=resume)
    return callback


def replayed(net: Net) -> Any:
    recorder = Recorder(N)
    for epoch, ids, logits, labels, _ in net.log_of_steps:
        recorder.update(ids, logits, labels, epoch=epoch)
    return recorder.table()


@pytest.mark.parametrize("gives", [("logits", "labels", "ids"), ("logits",)])
@pytest.mark.parametrize("as_mapping", [False, True])
def test_the_record_matches_a_plain_loop(gives: tuple[str, ...], as_mapping: bool, tmp_path: Path) -> None:
    net, recorder = Net(gives), Recorder(N)
    data = WithIds([{"input": x, "label": y} for x, y in examples()]) if as_mapping else None
    fit(net, recorder, tmp_path, data=data)
    assert recorder.table().equals(replayed(net))
    assert recorder.table().column("epochs").to_pylist() == [3] * N


def test_a_head_takes_the_features_and_the_quick_record_takes_no_epoch(tmp_path: Path) -> None:
    net = Net(("logits", "features"))
    recorder = Recorder(N, net.head)
    fit(net, recorder, tmp_path)
    assert recorder.table().column("mean_avh").null_count == 0
    quick = Recorder(N, track=("aum",))
    fit(Net(), quick, tmp_path)
    assert quick.table().column("epochs").to_pylist() == [3] * N


def test_a_checkpoint_holds_the_record(tmp_path: Path) -> None:
    first = Recorder(N)
    net = Net()
    fit(net, first, tmp_path, epochs=2)
    (checkpoint,) = tmp_path.rglob("*.ckpt")
    second = Recorder(N)
    fit(net, second, tmp_path, epochs=4, resume=str(checkpoint))
    assert second.table().column("epochs").to_pylist() == [4] * N
    assert second.table().equals(replayed(net))


@pytest.mark.parametrize("inside", [False, True], ids=["loss", "objective"])
def test_online_smoothing_ends_its_epochs_by_callback(inside: bool, tmp_path: Path) -> None:
    """As a loop that calls end_epoch by hand: the soft labels of the last epoch, made once per epoch."""

    class Smoothed(Net):
        def __init__(self) -> None:
            super().__init__()
            loss = mohs.OnlineSmoothingLoss(num_classes=CLASSES)
            self.loss = mohs.Objective(loss) if inside else loss

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            inputs, labels, _ = batch
            logits = self.head(inputs)
            self.log_of_steps.append((self.current_epoch, logits.detach().clone(), labels))
            return self.loss(logits, labels)

    net = Smoothed()
    trainer = lightning.Trainer(
        max_epochs=3, accelerator="cpu", callbacks=[EndEpochCallback()], logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(net, DataLoader(WithIds(examples()), batch_size=8, shuffle=True))
    by_hand = mohs.OnlineSmoothingLoss(num_classes=CLASSES)
    for epoch in range(3):
        for _, logits, labels in (step for step in net.log_of_steps if step[0] == epoch):
            by_hand(logits, labels)
        by_hand.end_epoch()
    loss = net.loss.loss if inside else net.loss
    torch.testing.assert_close(loss.soft_labels, by_hand.soft_labels)
    assert loss.soft_labels.sum() > 0
    assert not loss.counts.any()


DDP = """
import warnings
warnings.simplefilter("ignore")
import torch, lightning, mohs
from mohs.integrations.lightning import EndEpochCallback

class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(4, 3)
        with torch.no_grad():
            self.head.weight.copy_(torch.arange(12.0).view(3, 4).cos())
            self.head.bias.zero_()
        self.objective = mohs.Objective(mohs.OnlineSmoothingLoss(num_classes=3), [(1.0, mohs.EarlyLearning(24, 3))])
    def training_step(self, batch, number):
        inputs, labels, ids = batch
        return self.objective(self.head(inputs), labels, ids=ids)
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.0)

inputs, labels = torch.arange(96.0).view(24, 4).sin(), torch.arange(24) % 3
net, processes = Net(), int(os.environ.get("WORLD_SIZE", 1))
data = mohs.WithIds(torch.utils.data.TensorDataset(inputs, labels))
lightning.Trainer(
    max_epochs=1, accelerator="cpu", devices=processes, strategy="ddp" if processes > 1 else "auto",
    callbacks=[EndEpochCallback()], logger=False, enable_checkpointing=False, enable_progress_bar=False,
    enable_model_summary=False, default_root_dir=folder,
).fit(net, torch.utils.data.DataLoader(data, batch_size=6 // processes))
torch.save(net.state_dict(), folder / f"{processes}-{os.environ.get('RANK', 0)}.pt")
"""


def test_two_processes_collect_what_one_does(
    run_forked: Callable[..., int], run_ranks: Callable[..., list[int]], tmp_path: Path
) -> None:
    """DistributedDataParallel sends the first process's buffers to the others; it must leave those that collect alone."""
    assert run_forked(DDP, folder=tmp_path) == 0
    assert run_ranks(DDP, folder=tmp_path) == [0, 0]
    alone, *ranks = (torch.load(tmp_path / f"{name}.pt", weights_only=True) for name in ("1-0", "2-0", "2-1"))
    for name in ("objective.loss.soft_labels", "objective.regularizers.0.targets"):
        assert alone[name].sum() > 0
        for state in ranks:
            torch.testing.assert_close(state[name], alone[name])


def test_a_step_without_outputs_says_what_to_return(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a training step has no logits: let training_step return"):
        fit(Net(()), Recorder(N), tmp_path)
    with pytest.raises(ValueError, match="no logits and no labels and no ids"):
        step_parts(torch.tensor(1.0), torch.zeros(3, 4))
    with pytest.raises(ValueError, match=r"no ids.*WithIds"):
        step_parts({"logits": 1, "labels": 2}, (torch.zeros(3), torch.zeros(3)))


def test_outputs_of_the_step_take_precedence_over_the_batch() -> None:
    found = step_parts({"logits": "z", "labels": "own"}, {"labels": "batch", "id": "i", "input": "x"})
    assert found == {"logits": "z", "labels": "own", "ids": "i"}


def test_without_lightning_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightning.pytorch", None)
    monkeypatch.delitem(sys.modules, "mohs.integrations.lightning")
    with pytest.raises(ImportError, match=re.escape("pip install 'mohs[lightning]'")):
        importlib.import_module("mohs.integrations.lightning")
