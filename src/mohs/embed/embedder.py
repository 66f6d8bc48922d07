"""The interface of embedders: a name, a version for the cache, and a function that turns a batch into features (B, D)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mohs._core.errors import DataError

BLOCK_BYTES = 2**20
Run = Callable[[Any], Any]  # uint8 images (B, C, H, W) or a list of strings -> features (B, D)


@dataclass(frozen=True, eq=False)
class Embedder:
    """An embedder by name; its weights are loaded by `load`, so that a cached result needs no network.

    Attributes:
        name: name that creates it again.
        about: description, such as "EfficientNet-Lite0 (ImageNet)".
        version: version of the weights and of everything else that affects the features.
        load: called with all inputs, to which the embedder may be fitted; returns the function for batches.
        size: side length of the images that it takes; None: the images' own.
        batch: number of examples per call.
        better: name and cost of a stronger embedder, if there is one.
        fitted: whether it is fitted to the inputs, so that features depend on all of them.
        cached: whether results may be cached, which requires a known version.
        exact: name that gives the same features on every device; by default `name`.
    """

    name: str
    about: str
    version: str
    load: Callable[[Any], Run]
    size: int | None = None
    batch: int = 64
    better: str = ""
    fitted: bool = False
    cached: bool = True
    exact: str = ""


@dataclass(frozen=True)
class Spec:
    """A parsed name: "timm:resnet50,size=160" is ("timm", "resnet50", {"size": "160"})."""

    family: str
    model: str
    options: Mapping[str, str]

    @property
    def name(self) -> str:
        parts = [*filter(None, [self.model]), *(f"{key}={value}" for key, value in self.options.items())]
        return ":".join(filter(None, [self.family, ",".join(parts)]))

    def check(self, *known: str) -> None:
        """Raise unless a model is named and every option is one of these."""
        if not self.model:
            raise ValueError(
                f"{self.family}: needs the name of a model, such as {EXAMPLE.get(self.family, self.family + ':NAME')}"
            )
        unknown = next((key for key in self.options if key not in known), None)
        if unknown is not None:
            raise ValueError(f"{self.name}: unknown option {unknown!r}; {self.family} has {', '.join(known) or 'no options'}")

    def side(self) -> int | None:
        """The option `size`: a side length in pixels."""
        given = self.options.get("size")
        if given is None:
            return None
        if not given.isdecimal() or not 16 <= int(given) <= 2048:
            raise ValueError(f"{self.name}: size must be a number of pixels between 16 and 2048, got {given!r}")
        return int(given)


EXAMPLE = {
    "timm": "timm:vit_base_patch14_dinov2.lvd142m",
    "torchvision": "torchvision:resnet50",
    "hf": "hf:facebook/dinov2-base",
}


def parse_embedder(name: str) -> Spec:
    """Parse "family:model,key=value" or "family:key=value"."""
    family, _, rest = name.strip().partition(":")
    first, *others = rest.split(",")
    model, parts = ("", [first, *others]) if "=" in first else (first, others)
    options = {}
    for part in parts:
        key, equals, value = part.partition("=")
        if not equals:
            raise ValueError(f"{name!r}: expected key=value after the model, got {part!r} (such as size=224)")
        options[key.strip()] = value.strip()
    return Spec(family.strip(), model.strip(), options)


def hash_file(path: str | Path) -> str:
    """The first 16 hexadecimal digits of a file's SHA-256."""
    digest = hashlib.sha256()
    with Path(path).open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()[:16]


def check_features(found: Any, rows: int, name: str) -> Tensor:
    """Features as float32 on the CPU; raises unless they are finite and have shape (rows, D)."""
    features = found if isinstance(found, Tensor) else torch.as_tensor(found)
    if features.dim() != 2 or len(features) != rows or not features.shape[1] or features.is_complex():
        raise DataError(f"{name}: returned {features.dtype} {tuple(features.shape)} for a batch of {rows}; expected ({rows}, D)")
    features = features.detach().float().cpu()
    if not features.isfinite().all():
        row = int((~features.isfinite().all(1)).nonzero()[0])
        raise DataError(f"{name}: returned NaN or infinity (row {row} of a batch of {rows})")
    return features


def unit_rows(features: Any) -> Any:
    """Rows of a NumPy array divided by their lengths; zero rows stay zero."""
    lengths = (features**2).sum(1, keepdims=True) ** 0.5
    return features / (lengths + (lengths == 0))


def spread_places(rows: int, most: int) -> Sequence[int]:
    """All places 0..rows−1, or `most` of them evenly spaced."""
    return range(rows) if rows <= most else [i * rows // most for i in range(most)]
