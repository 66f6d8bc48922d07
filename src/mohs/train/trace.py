"""The trace: confidence, correctness, feature norm and AVH of each example at every epoch (the AVH paper's Figure 4).

Four numbers per example and epoch in half precision: 8 bytes, or 80 MB for 50,000 examples and 200 epochs.

A run with `trace_test` traces its test set as well, after every epoch: `test-007.safetensors` in the run's folder holds the
same four numbers of each test example after seven epochs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mohs._core.checksums import listed
from mohs._core.distributed import add_over_ranks
from mohs.data.examples import Examples
from mohs.evaluate.outputs import predict
from mohs.hardness.angular import avh
from mohs.margin import margin
from mohs.models.network import Network
from mohs.train.checkpoint import load_tree, save_tree
from mohs.train.directory import RunDirectory

TRACED = ("confidence", "right", "norm", "avh")
TEST_FILE = "test-{:03}.safetensors"


class Trace:
    """`add` records a batch and `end_epoch` stores the epoch; `values[name]` is (epochs, N), NaN where nothing was recorded."""

    def __init__(self, epochs: int, examples: int, *, device: torch.device | str = "cpu") -> None:
        self.now = torch.full((len(TRACED), examples), torch.nan, dtype=torch.float16, device=device)
        self.past = torch.full((epochs, len(TRACED), examples), torch.nan, dtype=torch.float16)

    @torch.no_grad()
    def add(self, ids: Tensor, logits: Tensor, labels: Tensor, features: Tensor, weight: Tensor) -> None:
        """Record one batch; weight (K, D) is the head's."""
        values = (
            torch.sigmoid(margin(logits, labels)),
            logits.argmax(1) == labels,
            torch.linalg.vector_norm(features, dim=1),
            avh(features, weight, labels),
        )
        self.now.index_copy_(1, ids, torch.stack([value.half() for value in values]))

    def end_epoch(self, epoch: int) -> None:
        """Store what was added since the last call as this epoch, merged over processes."""
        seen = ~self.now.isnan()
        total, count = add_over_ranks(self.now.nan_to_num(0.0).float()), add_over_ranks(seen.float())
        self.past[epoch] = (total / count).half().cpu()  # 0/0 = NaN
        self.now.fill_(torch.nan)

    @property
    def values(self) -> dict[str, Tensor]:
        return {name: self.past[:, i] for i, name in enumerate(TRACED)}

    def state_dict(self) -> dict[str, Any]:
        return {"past": self.past}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.past.copy_(state["past"])


def trace_examples(network: Network, examples: Examples, *, precision: str = "no") -> dict[str, Tensor]:
    """The traced numbers of each example (N,) by the current network."""
    trace, out = Trace(1, len(examples)), predict(network, examples, precision=precision)
    trace.add(torch.arange(len(examples)), out.logits, examples.labels, out.features, out.weight)
    return dict(zip(trace.values, trace.now, strict=True))


def save_test_trace(values: dict[str, Tensor], folder: Path, epochs: int) -> None:
    """Store the test set's trace after this many epochs."""
    save_tree(values, folder / TEST_FILE.format(epochs))


def load_test_traces(folder: str | Path) -> dict[int, dict[str, Tensor]]:
    """The test set's traces in a run's folder, by the number of epochs trained."""
    folder = Path(folder)
    names = {file.name for file in folder.glob("test-*.safetensors")} | {one for one in listed(folder) if one.startswith("test-")}
    return {
        int(Path(name).stem.removeprefix("test-")): load_tree(
            folder / name, lost="a trace of the test set is lost", repair=RunDirectory(folder).repair
        )
        for name in sorted(names)
    }
