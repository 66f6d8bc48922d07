"""The inputs of a linear head: standardized features, or kernel units (Nyström) if there are landmarks.

    x̃ = (x − mean)/scale                                         scale: one for all features, or one for each (see below)
    φ(x) = K_LL^(−½) k(x̃),   k_l(x̃) = exp(−2 |x̃ − x̃_l|²/d²)      x̃_l: L rows drawn as landmarks; d²: median |x̃_l − x̃_m|²

then centered and divided by one number, so that entries have mean square 1. Without landmarks φ(x) = x̃. Features with a common
unit (pixels, embeddings: no deviation beyond 10 medians) are divided by one number, which does not amplify nearly constant ones;
features with different units are each divided by their own deviation. Landmarks are distinct rows, drawn by a hash of their
values: the map does not depend on the order of the rows, and a weight of 2 is the same as two copies. Nor does it depend on
labels, so it may be fitted on all rows, held out or not.
Williams & Seeger, "Using the Nyström method to speed up kernel machines" (NIPS 2000).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from mohs._core.errors import DataError
from mohs._core.forward import row_slices

CHUNK_ENTRIES = 2**22  # entries at a time
DRAWN = 8192  # rows used to center the kernel units
OWN_UNITS = 10.0  # a deviation this many times the median means different units
LEAST_EIGENVALUE = 1e-4  # relative to the largest: smaller eigenvalues of the kernel are rounding errors


@dataclass(frozen=True, eq=False)
class FeatureMap:
    """x (n, D) -> φ (n, width); fitted by `feature_map`."""

    mean: Tensor
    scale: Tensor
    landmarks: Tensor | None = None
    reach: float = 1.0
    projection: Tensor | None = None
    center: Tensor | None = None

    @property
    def width(self) -> int:
        """Number of outputs of the map."""
        return len(self.mean) if self.landmarks is None else len(self.landmarks)

    def __call__(self, x: Tensor) -> Tensor:
        x = (x.to(self.mean.dtype) - self.mean) / self.scale
        if self.landmarks is None or self.projection is None or self.center is None:
            return x
        return kernel(x, self.landmarks, self.reach) @ self.projection - self.center


class MappedFeatures:
    """`MappedFeatures(features, map)[rows]`: mapped rows (n, width) in float32, cached if they fit in memory.

    Cached as float32 up to 2²⁷ entries (512 MiB), as float16 up to 2²⁹ (1 GiB; entries are of size 1 and keep three digits);
    beyond that rows are mapped each time. Features that are only standardized are never cached: computing is quicker.
    """

    BLOCK: ClassVar[int] = 4096
    FULL: ClassVar[int] = 2**27
    HALF: ClassVar[int] = 2**29

    def __init__(self, features: Any, map: FeatureMap) -> None:  # noqa: A002
        self.features, self.map = features, map
        self.cache: Tensor | None = None
        entries = len(features) * map.width
        if map.landmarks is None or entries > self.HALF:
            return
        cache = torch.empty(len(features), map.width, dtype=torch.float32 if entries <= self.FULL else torch.float16)
        for part in row_slices(len(features), self.BLOCK):
            cache[part] = map(rows(features, part))
        self.cache = cache

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, places: Tensor) -> Tensor:
        return self.map(rows(self.features, places)) if self.cache is None else self.cache[places].float()


def feature_map(
    features: Any, *, landmarks: int = 0, seed: int = 0, sample_weight: Tensor | None = None, dtype: torch.dtype | None = None
) -> FeatureMap:
    """Fit the map to features (N, D), an array or tensor; landmarks: number of kernel units, 0 for a linear map (at most N)."""
    if landmarks < 0:
        raise ValueError(f"landmarks must be at least 0, got {landmarks}")
    check_features(features)
    dtype = dtype or precision(features)
    mean, deviation = moments(features, sample_weight)
    plain = FeatureMap(mean.to(dtype), feature_scale(deviation).to(dtype))
    if not landmarks:
        return plain
    order, weight = draw_rows(features, DRAWN, seed=seed, sample_weight=sample_weight, least=landmarks)
    units = plain(rows(features, order[:landmarks]))
    distances = torch.cdist(units, units).square()
    apart = distances[distances > 0]
    reach = float(apart.median()) if apart.numel() else 1.0
    projection = inverse_root(kernel(units, units, reach))
    drawn = kernel(plain(rows(features, order)), units, reach) @ projection  # (n, L)
    weight = (weight / weight.sum()).to(dtype)
    center = weight @ drawn
    size = float((weight @ (drawn - center).square()).mean().sqrt()) or 1.0
    return FeatureMap(plain.mean, plain.scale, units, reach, projection / size, center / size)


def draw_rows(
    features: Any, number: int, *, seed: int, sample_weight: Tensor | None = None, least: int = 0
) -> tuple[Tensor, Tensor]:
    """Places of distinct rows in random order, at most `number` or `least` if more, and the total weight of each row's copies."""
    keys = np.concatenate([row_keys(rows(features, part).double().numpy(), seed) for part in chunks(features)])
    _, first, copy = np.unique(keys, return_index=True, return_inverse=True)
    weight = np.bincount(copy, None if sample_weight is None else sample_weight.double().numpy())
    number = max(number, least)
    return torch.from_numpy(first[:number]), torch.from_numpy(weight[:number]).double()


def row_keys(values: np.ndarray[Any, Any], seed: int) -> np.ndarray[Any, Any]:
    """A 64-bit hash of each row of values (n, D) -> (n,): equal for equal rows."""
    column = np.random.default_rng(seed).integers(2**64, size=values.shape[1], dtype=np.uint64)
    bits = np.ascontiguousarray(values + 0.0, dtype=np.float64).view(np.uint64)  # −0 becomes 0
    return _mixed(_mixed(bits ^ column).sum(1, dtype=np.uint64))


def _mixed(bits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Every bit of the result depends on every bit (the finalizer of SplitMix64)."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
    mixed: np.ndarray[Any, Any] = bits ^ (bits >> np.uint64(31))
    return mixed


def kernel(x: Tensor, landmarks: Tensor, reach: float) -> Tensor:
    """x (n, D), landmarks (L, D) -> exp(−2 |x − x_l|²/reach) (n, L); reach is d²."""
    squares = x.square().sum(1, keepdim=True) + landmarks.square().sum(1)
    return squares.addmm_(x, landmarks.T, alpha=-2).clamp_(min=0).mul_(-2 / reach).exp_()


def inverse_root(gram: Tensor) -> Tensor:
    """K^(−½) (L, L), with eigenvalues below the rounding level raised to it."""
    values, vectors = torch.linalg.eigh(gram.double())
    root: Tensor = (vectors * values.clamp(min=LEAST_EIGENVALUE * float(values.max())).rsqrt()) @ vectors.T
    return root.to(gram.dtype)


def feature_scale(deviation: Tensor) -> Tensor:
    """Standard deviations (D,) -> what to divide by (D,): never 0."""
    varying = deviation[deviation > 0]
    if not varying.numel():
        return torch.ones_like(deviation)
    if varying.max() <= OWN_UNITS * varying.median():
        return torch.full_like(deviation, float(varying.square().mean().sqrt()))
    return torch.where(deviation > 0, deviation, 1.0)


def moments(features: Any, sample_weight: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation (D,) of each feature in float64; 0 for one that is constant up to rounding."""
    if sample_weight is None:
        sample_weight = torch.ones(len(features), dtype=torch.float64)
    w = (sample_weight / sample_weight.sum()).double()
    mean = torch.stack([w[part] @ rows(features, part).double() for part in chunks(features)]).sum(0)
    square = torch.stack([w[part] @ (rows(features, part).double() - mean).square() for part in chunks(features)]).sum(0)
    deviation = square.sqrt()
    return mean, torch.where(deviation > 1e-7 * mean.abs(), deviation, 0.0)


def rows(features: Any, places: Tensor | slice) -> Tensor:
    """Some rows as a tensor; arrays are copied, as they may be read-only."""
    if isinstance(features, Tensor):
        return features[places].detach()
    return torch.from_numpy(np.array(features[places if isinstance(places, slice) else places.numpy()]))


def chunks(features: Any) -> Iterator[slice]:
    """Slices of rows that hold a few million entries each."""
    return row_slices(len(features), max(1, CHUNK_ENTRIES // max(1, features.shape[1])))


def precision(features: Any) -> torch.dtype:
    """float64 for small data, float32 for large."""
    return torch.float64 if features.shape[0] * features.shape[1] <= CHUNK_ENTRIES else torch.float32


def check_features(features: Any) -> None:
    """Raise unless features are (N, D), real and finite; the error names the first row that is not."""
    if not hasattr(features, "shape") or len(features.shape) != 2 or 0 in features.shape:
        shape = tuple(getattr(features, "shape", ())) or type(features).__name__
        raise DataError(f"features must be an array or tensor of shape (N, D) with N and D at least 1, got {shape}")
    for part in chunks(features):
        values = rows(features, part)
        if values.is_complex():
            raise DataError("features must be real numbers, got complex ones")
        bad = ~values.isfinite().all(1)
        if bad.any():
            row = part.start + int(bad.nonzero()[0])
            raise DataError(f"features[{row}] holds NaN or infinity: fix or drop such rows before fitting")
