"""The trace: how sure, how long and how hard each example was at every epoch (the AVH paper's Figure 4 for one's own data).

Four numbers an example and epoch, in half precision: confidence and correctness, length of the features, AVH. That is
eight bytes each, 80 MB for 50,000 examples and 200 epochs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mohs.hardness.angular import avh
from mohs.margin import margin

TRACED = ("confidence", "right", "norm", "avh")


class Trace:
    """`add` what a batch showed, `end_epoch` files it; `values[name]` is (epochs, N), NaN where nothing was seen."""

    def __init__(self, epochs: int, examples: int, *, device: torch.device | str = "cpu") -> None:
        self.now = torch.full((len(TRACED), examples), torch.nan, dtype=torch.float16, device=device)
        self.past = torch.full((epochs, len(TRACED), examples), torch.nan, dtype=torch.float16)

    @torch.no_grad()
    def add(self, ids: Tensor, logits: Tensor, labels: Tensor, features: Tensor, weight: Tensor) -> None:
        """One batch; weight (K, D) is the head's."""
        seen = (
            torch.sigmoid(margin(logits, labels)),
            logits.argmax(1) == labels,
            torch.linalg.vector_norm(features, dim=1),
            avh(features, weight, labels),
        )
        self.now.index_copy_(1, ids, torch.stack([value.half() for value in seen]))

    def end_epoch(self, epoch: int) -> None:
        """File what was added since the last call under this epoch; several processes add theirs up."""
        from mohs._core.distributed import add_over_ranks

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
