"""Mapped features by their places: kept where they fit in memory, mapped anew at every asking where they do not.

float32 up to 2²⁷ entries (512 MiB), float16 up to 2²⁹ (1 GiB; entries are of size 1 and keep three digits), nothing beyond.
Features that are only brought to one scale are never kept: that is quicker done than stored.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from mohs.train.feature_map import FeatureMap, rows


class Mapped:
    """`Mapped(features, map)[places]`: rows (n, width) in float32."""

    BLOCK: ClassVar[int] = 4096
    FULL: ClassVar[int] = 2**27
    HALF: ClassVar[int] = 2**29

    def __init__(self, features: Any, map: FeatureMap) -> None:  # noqa: A002
        self.features, self.map = features, map
        self.kept: Tensor | None = None
        entries = len(features) * map.width
        if map.landmarks is None or entries > self.HALF:
            return
        kept = torch.empty(len(features), map.width, dtype=torch.float32 if entries <= self.FULL else torch.float16)
        for start in range(0, len(features), self.BLOCK):
            part = slice(start, min(start + self.BLOCK, len(features)))
            kept[part] = map(rows(features, part))
        self.kept = kept

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, places: Tensor) -> Tensor:
        return self.map(rows(self.features, places)) if self.kept is None else self.kept[places].float()
