"""Sparse features: rows that are converted to dense in chunks, and a linear head's product that never makes them dense.

SparseRows(matrix)[places]                               rows as a dense array, for everything that reads rows of features
SparseInputs(rows, map) @ Wᵀ                             X̃ Wᵀ = X (W/scale)ᵀ − W (mean/scale), with a gradient for W
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mohs.train.feature_map import FeatureMap


class SparseRows:
    """A SciPy sparse matrix (N, D) that gives dense rows, like an array."""

    def __init__(self, matrix: Any) -> None:
        self.matrix = matrix.tocsr()
        self.shape: tuple[int, int] = matrix.shape

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, places: Any) -> np.ndarray[Any, Any]:
        dense: np.ndarray[Any, Any] = self.matrix[places].toarray()
        return dense


@dataclass(frozen=True, eq=False)
class SparseInputs:
    """Sparse rows, standardized by a linear map when they are multiplied."""

    rows: SparseRows
    map: FeatureMap

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.map.mean.dtype

    def __matmul__(self, weights: Tensor) -> Tensor:
        scaled = weights / self.map.scale.unsqueeze(1)  # (D, K)
        product: Tensor = _Product.apply(scaled, self.rows.matrix)
        return product - self.map.mean @ scaled


class _Product(torch.autograd.Function):
    """A sparse matrix (N, D) times dense weights (D, K); the gradient is the transpose times that of the product."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, matrix: Any) -> Tensor:
        ctx.matrix = matrix
        return torch.from_numpy(matrix @ weights.detach().numpy()).to(weights.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return torch.from_numpy(ctx.matrix.T @ gradients[0].numpy()).to(gradients[0].dtype), None
