"""Lightning callbacks: one records the training dynamics of each example, one ends the epochs of losses that learn by epoch.

    trainer = lightning.Trainer(callbacks=[RecorderCallback(recorder), EndEpochCallback()])

Each step needs ids, logits and labels, and features if the recorder has a head. They are taken from the output of
`training_step` (a mapping with "logits", "labels", "ids", besides its "loss") or, failing that, from the batch: a mapping with
"ids" or "id" and "labels" or "label", or a tuple (input, label, id) as `mohs.WithIds` returns it. Logits can only come from
`training_step`. An example counts once per epoch; processes are merged at the end of each epoch. The record is part of the
trainer's checkpoints.

`EndEpochCallback` calls `end_epoch()` of every loss and regularizer in the LightningModule that has one: online label smoothing
would otherwise never leave its first epoch, and early learning would not merge its targets over processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mohs._core.dataclass_module import DataclassModule
from mohs.hardness.recorder import Recorder

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except Exception as error:  # a broken installation raises more than ImportError
    raise ImportError(
        f"mohs.integrations.lightning needs lightning, which did not import ({error}): pip install 'mohs[lightning]'"
    ) from error

NAMES = {"ids": ("ids", "id"), "labels": ("labels", "label"), "logits": ("logits",), "features": ("features",)}
PLACES = {"labels": 1, "ids": 2}  # positions in a batch (input, label, id)


def step_parts(outputs: Any, batch: Any) -> dict[str, Any]:
    """The ids, logits, labels and, if present, features of a step, from its output or else from its batch."""
    placed = {part: batch[place] for part, place in PLACES.items() if isinstance(batch, tuple | list) and place < len(batch)}
    sources = [source for source in (outputs, batch, placed) if isinstance(source, Mapping)]
    found: dict[str, Any] = {}
    for part, names in NAMES.items():
        values = [source[name] for source in sources for name in names if name in source]
        if values:
            found[part] = values[0]
    missing = [part for part in ("logits", "labels", "ids") if part not in found]
    if missing:
        raise ValueError(
            f"a training step has no {' and no '.join(missing)}: let training_step return "
            '{"loss": loss, "logits": logits, "labels": labels, "ids": ids}; ids come with the batch of WithIds(dataset)'
        )
    return found


class RecorderCallback(Callback):
    """Record every training batch.

    Args:
        recorder: The `mohs.Recorder` to update; its epochs follow the trainer's.
    """

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int) -> None:
        parts = step_parts(outputs, batch)
        epoch = None if self.recorder.track == ("aum",) else trainer.current_epoch
        self.recorder.update(parts["ids"], parts["logits"], parts["labels"], parts.get("features"), epoch=epoch)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.recorder.end_epoch()

    def state_dict(self) -> dict[str, Any]:
        return self.recorder.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.recorder.load_state_dict(state_dict)


class EndEpochCallback(Callback):
    """End the epoch of every mohs loss and regularizer in the LightningModule after each training epoch.

    With several processes, DistributedDataParallel would overwrite what each process has collected with the first process's; the
    callback excludes these buffers from it.
    """

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        kept = list(getattr(pl_module, "_ddp_params_and_buffers_to_ignore", ()))
        kept += [f"{name}.{buffer}" for name, part in _by_epoch(pl_module) for buffer, _ in part.named_buffers()]
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(pl_module, kept)  # type: ignore[no-untyped-call]

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for _, part in _by_epoch(pl_module):
            part.end_epoch()


def _by_epoch(module: nn.Module) -> list[tuple[str, Any]]:
    """The losses and regularizers that learn by epoch, with their names in the module."""
    parts = module.named_modules()
    return [(name, part) for name, part in parts if isinstance(part, DataclassModule) and hasattr(part, "end_epoch")]
