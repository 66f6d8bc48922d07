"""`embed`: data of any source to features, one vector per example, cached by the inputs and the embedder.

Features do not depend on labels: after labels are corrected, the cached features are reused. Splits share one embedder; an
embedder that is fitted is fitted to the training examples.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mohs._core.errors import DataError, NoLabels, RunError
from mohs.data.decode import is_image_name
from mohs.data.examples import Data, Examples
from mohs.data.image_stores import FolderFiles, ZipFiles
from mohs.data.images import ImageFiles
from mohs.data.open_data import open_data
from mohs.data.unlabeled import open_unlabeled
from mohs.embed.choose_embedder import create_embedder
from mohs.embed.embedder import Embedder, Run, check_features
from mohs.embed.feature_cache import cache_folder, collect_features, open_features, write_features

FORMAT = 1  # increase when a change in this package changes features
COPIED = 4096  # rows at a time
AS_GIVEN = "features"  # name of the embedder if the data already are features
Progress = Callable[[int, int], None]
With = str | Callable[[Any], Any]


@dataclass(frozen=True, eq=False)
class Embedded:
    """Features of a data set.

    Attributes:
        data: the data with features as inputs; labels, classes, keys and paths are unchanged.
        embedder: name of the embedder, as `embed` takes it.
        about: description of the features: "EfficientNet-Lite0 (ImageNet), 1,280 dimensions".
        better: stronger embedder and what it costs; "" where nothing is suggested.
        seconds: time it took.
        cached: whether everything came from the cache.
        folders: cache folder of each split that has one.
    """

    data: Data = field(repr=False)
    embedder: str
    about: str
    better: str = ""
    seconds: float = 0.0
    cached: bool = False
    folders: dict[str, Path] = field(default_factory=dict)

    @property
    def train(self) -> Examples:
        """The training examples, with features as inputs."""
        return self.data.train

    @property
    def features(self) -> Tensor:
        """Features of the training examples (N, D)."""
        return torch.as_tensor(self.data.train.inputs)

    def summary(self, option: str = "--embed") -> str:
        """The embedder that was used and a stronger one, in one line."""
        installed = "pip install" not in self.better
        advice = f" A stronger embedder finds more: {option} {self.better}." if installed else f" Better with {self.better}."
        advice = advice if self.better else ""
        return f"Features: {self.about}.{advice}"


def embed(
    data: Any = None,
    with_: With = "auto",
    *,
    device: str | torch.device = "auto",
    batch: int | None = None,
    cache: str | Path | bool = True,
    progress: Progress | None = None,
    tell: Callable[[str], None] | None = None,
    **open_as: Any,
) -> Embedded:
    """Turn images or text into features.

    Args:
        data: anything that `open_data` takes, and images or texts without labels: a folder or a list of image files, a file of
            rows without a label column, a list of texts.
        with_: "auto", a name of EMBEDDERS with its model ("timm:resnet50", "hf:facebook/dinov2-base"),
            "package.module:function", or a function. It is called with uint8 images (B, C, H, W) or a list of strings and
            returns (B, D). Only a named model is ever downloaded.
        device: "auto", "cpu", "cuda" or "cuda:1".
        batch: batch size; default: depends on embedder and device. Halved when the GPU runs out of memory.
        cache: folder of cached features; True: MOHS_CACHE, or ~/.cache/mohs/embeddings; False: keep them in memory only.
        progress: called with the number of finished examples and of all examples.
        tell: called with one line about the embedder and a stronger one.
        **open_as: options of `open_data`: label, text, image_size, split, root, ...

    Returns:
        The data with features as inputs, and what they are. Large features stay on disk, memory-mapped.

    Example:
        >>> found = mohs.embed("photos/")
        >>> scores = mohs.audit(found.data)
    """
    start = time.monotonic()
    opened = _opened(data, open_as)
    kind = opened.train.kind
    if kind == "features":
        width = opened.train.shape[0]
        return Embedded(opened, AS_GIVEN, f"the data's own, {width:,} dimensions")
    if kind == "table":
        raise DataError(
            f"{opened.name}: a table is not embedded: `mohs audit` judges tables directly, by trees and a linear model; "
            "if a column holds texts, name it with text (--text)"
        )
    embedder = create_embedder(with_, kind=kind, device=device, examples=len(opened.train))
    if batch is not None:
        embedder = replace(embedder, batch=batch)
    worker = Worker(embedder, opened.train.inputs)
    total, before = sum(len(one) for one in opened.splits.values()), 0
    parts, folders, cached = {}, {}, []
    for name, examples in opened.splits.items():
        done = _shifted(progress, before, total)
        features, folder, found = embed_inputs(worker, examples, cache=cache, progress=done, tell=tell)
        parts[name] = replace(examples, inputs=features)
        cached.append(found)
        before += len(examples)
        if folder is not None:
            folders[name] = folder
    width = parts["train"].shape[0]
    result = Embedded(
        Data(parts["train"], parts.get("val"), parts.get("test")),
        embedder.name,
        f"{embedder.about}, {width:,} dimensions",
        embedder.better,
        time.monotonic() - start,
        all(cached),
        folders,
    )
    if tell is not None:
        tell(result.summary())
    return result


def _opened(data: Any, open_as: dict[str, Any]) -> Data:
    """The data, or only their inputs if they have no labels."""
    path = isinstance(data, str | os.PathLike)
    inputs_alone = is_image_name(os.fspath(data)) and Path(data).is_file() if path else _has_no_labels(data)
    unlabeled = {name: value for name, value in open_as.items() if name in ("text", "image_size", "memory_limit")}
    if inputs_alone and unlabeled.keys() >= open_as.keys():
        return open_unlabeled(data, **unlabeled)
    try:
        return open_data(data, **open_as)
    except NoLabels:
        if not unlabeled.keys() >= open_as.keys():
            raise
    return open_unlabeled(data, **unlabeled)


def _has_no_labels(data: Any) -> bool:
    """Whether data in memory are only inputs: an array, or a list of texts or files."""
    listed = isinstance(data, list) and bool(data) and all(isinstance(one, str | os.PathLike) for one in data)
    return listed or isinstance(data, np.ndarray | Tensor)


class Worker:
    """An embedder and the inputs it is fitted to; its weights are loaded when the first batch needs them."""

    def __init__(self, embedder: Embedder, fitted: Any) -> None:
        self.embedder, self.fitted = embedder, fitted
        self._run: Run | None = None
        self.batch = embedder.batch

    def __call__(self, batch: Any) -> Tensor:
        """Features of a batch, in smaller batches where the GPU's memory does not suffice."""
        if self._run is None:
            self._run = self.embedder.load(self.fitted)
        try:
            return check_features(self._run(batch), len(batch), self.embedder.name)
        except torch.cuda.OutOfMemoryError:
            if len(batch) < 2:
                raise
        torch.cuda.empty_cache()
        half = (len(batch) + 1) // 2
        self.batch = min(self.batch, half)
        return torch.cat([self(batch[:half]), self(batch[half:])])


def embed_inputs(
    worker: Worker,
    examples: Examples,
    *,
    cache: str | Path | bool = True,
    progress: Progress | None = None,
    tell: Callable[[str], None] | None = None,
) -> tuple[Tensor, Path | None, bool]:
    """Features of one split, their cache folder, and whether they were cached."""
    rows, embedder = len(examples), worker.embedder
    inputs = _at_size(examples, embedder.size)

    def blocks(first: int) -> Iterator[Tensor]:
        at = first
        for batch in _batches(inputs, first, worker):
            yield worker(batch)
            at += len(batch)
            if progress is not None:
                progress(at, rows)

    if cache is False or not embedder.cached:
        return collect_features(rows, blocks), None, False
    key = _key(inputs, worker)
    folder = (cache_folder() if cache is True else Path(cache)) / key
    found = open_features(folder)
    if found is not None and len(found) == rows:
        if progress is not None:
            progress(rows, rows)
        return found, folder, True
    about = _about(key, examples, embedder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if cache is not True:
            raise RunError(f"{folder}: cannot be written ({error.strerror}): give another cache folder") from error
        if tell is not None:
            tell(f"Features are not cached: {folder} cannot be written ({error.strerror}); set MOHS_CACHE to another folder.")
        return collect_features(rows, blocks), None, False
    return write_features(folder, rows, about, blocks), folder, False


def cache_part(examples: Examples, rows: Tensor, with_: With = "auto", *, device: str | torch.device = "auto") -> bool:
    """Cache the features of these rows of a data set separately, so that a data set of these rows is not embedded again.

    Returns:
        Whether that was possible: the features of all examples are cached, and do not depend on the other examples.
    """
    embedder = create_embedder(with_, kind=examples.kind, device=device, examples=len(examples))
    if not embedder.cached or embedder.fitted:
        return False
    worker, part = Worker(embedder, examples.inputs), examples.take(rows)
    found = open_features(cache_folder() / _key(_at_size(examples, embedder.size), worker))
    if found is None or len(found) != len(examples):
        return False
    key = _key(_at_size(part, embedder.size), worker)
    folder = cache_folder() / key
    if open_features(folder) is None:
        folder.mkdir(parents=True, exist_ok=True)
        about = _about(key, part, embedder)
        write_features(folder, len(rows), about, lambda first: (found[some] for some in torch.split(rows[first:], COPIED)))
    return True


def _about(key: str, examples: Examples, embedder: Embedder) -> dict[str, Any]:
    """The contents of about.json for cached features."""
    about = {"hash": key, "data": examples.name, "embedder": embedder.name, "version": embedder.version}
    return {**about, "rows": len(examples)}


def inputs_hash(inputs: Any) -> str:
    """A hash of inputs without labels: the values of a tensor, the strings of texts, the names, sizes and times of files."""
    if isinstance(inputs, Tensor):
        digest = hashlib.sha256(repr((str(inputs.dtype), tuple(inputs.shape))).encode())
        digest.update(inputs.contiguous().view(torch.uint8).flatten().numpy().data)
        return digest.hexdigest()
    digest = hashlib.sha256(str(inputs.fingerprint()).encode())
    store: Any = getattr(inputs, "store", None)
    if isinstance(store, ZipFiles):
        digest.update(repr([store.archive().getinfo(name).CRC for name in inputs.names]).encode())
    elif isinstance(store, FolderFiles):
        times = [(store.root / name).stat().st_mtime_ns for name in inputs.names]
        digest.update(repr((str(store.root.resolve()), times)).encode())
    return digest.hexdigest()


def _key(inputs: Any, worker: Worker) -> str:
    embedder = worker.embedder
    fitted = inputs_hash(worker.fitted) if embedder.fitted else ""
    words = (FORMAT, embedder.exact or embedder.name, embedder.version, inputs_hash(inputs), fitted)
    return hashlib.sha256(repr(words).encode()).hexdigest()[:24]


def _at_size(examples: Examples, size: int | None) -> Any:
    """The inputs; images in files are decoded at the size that the embedder takes."""
    inputs = examples.inputs
    if isinstance(inputs, ImageFiles) and size is not None:
        return ImageFiles(inputs.store, inputs.names, mode=inputs.mode, size=(size, size))
    if examples.kind == "images" and examples.shape[0] not in (1, 3) and size is not None:
        raise DataError(f"{examples.name}: images have {examples.shape[0]} channels; pretrained networks take 1 or 3")
    return inputs


def _batches(inputs: Any, first: int, worker: Worker) -> Iterator[Any]:
    """Consecutive batches from a row on; inputs that must be decoded are prefetched by one batch."""
    if isinstance(inputs, Tensor):
        low, high = _range(inputs)
        at = first
        while at < len(inputs):
            batch = inputs[at : at + worker.batch]
            at += len(batch)
            yield batch if inputs.dtype == torch.uint8 else _as_bytes(batch, low, high)
        return
    with ThreadPoolExecutor(1) as reader:
        at, ahead = first, None
        while at < len(inputs):
            here = ahead.result() if ahead is not None else inputs[_places(at, worker.batch, len(inputs))]
            at += len(here)
            ahead = reader.submit(inputs.__getitem__, _places(at, worker.batch, len(inputs))) if at < len(inputs) else None
            yield here


def _places(first: int, number: int, rows: int) -> Tensor:
    return torch.arange(first, min(first + number, rows))


def _range(images: Tensor) -> tuple[float, float]:
    """The values of black and white: 0 and 1 if all pixels lie between them, else the minimum and maximum."""
    if images.dtype == torch.uint8 or not images.numel():
        return 0.0, 1.0
    low, high = float(images.min()), float(images.max())
    return (0.0, 1.0) if low >= 0 and high <= 1 else (low, high)


def _as_bytes(images: Tensor, low: float, high: float) -> Tensor:
    return ((images.float() - low) * (255 / max(high - low, 1e-12))).round().clamp(0, 255).to(torch.uint8)


def _shifted(progress: Progress | None, before: int, total: int) -> Progress | None:
    return None if progress is None else lambda done, rows: progress(before + done, total)
