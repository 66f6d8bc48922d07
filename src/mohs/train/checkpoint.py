"""Checkpoints without pickle: a tree of dicts, lists, tensors and plain values as one safetensors file.

Tensors are stored under their path in the tree, everything else as JSON in the header. Files are written atomically: a
process that is killed while writing leaves the old file intact.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from mohs._core.checksums import reading
from mohs._core.files import written_whole

TENSOR, NUMBERED = "<tensor>", "<numbered>"  # markers in the JSON: a tensor belongs here; the keys of this dict were integers
REPAIR = "remove this file and run the same command again"


def save_tree(tree: Any, path: Path, *, sync: bool = True) -> None:
    """Write the tree; its tensors may be on any device. sync: as for `written_whole`."""
    tensors: dict[str, Tensor] = {}
    plain = json.dumps(_strip(tree, "", tensors))
    with written_whole(path, sync=sync) as part:
        part.write_bytes(save(on_host(tensors), metadata={"tree": plain}))


def load_tree(path: Path, *, lost: str = "its contents are lost", repair: str = REPAIR) -> Any:
    """The tree that `save_tree` wrote, its tensors on the CPU; lost, repair: for the error if it is damaged (`check_file`)."""
    with reading(path, lost=lost, repair=repair), safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (no mapping)
        return _fill(json.loads(file.metadata()["tree"]), "", tensors)


def host_copy(tree: Any) -> Any:
    """A snapshot of the tree, its tensors copied to the CPU, so that it can be written while training continues."""
    tensors: dict[str, Tensor] = {}
    plain = _strip(tree, "", tensors)
    made: dict[str, Tensor] = {}
    for device in {tensor.device for tensor in tensors.values()}:  # one transfer per device
        here = [(name, tensor) for name, tensor in tensors.items() if tensor.device == device]
        here.sort(key=lambda item: -item[1].element_size())  # so that each is aligned for its type
        held = torch.cat([tensor.reshape(-1).view(torch.uint8) for _, tensor in here])
        if device.type != "cpu":
            held = torch.empty(held.shape, dtype=torch.uint8, pin_memory=held.is_cuda).copy_(held)
        pieces = torch.split(held, [tensor.numel() * tensor.element_size() for _, tensor in here])
        made |= {name: piece.view(of.dtype).view(of.shape) for (name, of), piece in zip(here, pieces, strict=True)}
    return _fill(plain, "", made)


def on_host(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies on the CPU, each with its own memory; tensors on another device are copied in one transfer."""
    far = {name: tensor for name, tensor in tensors.items() if not tensor.is_cpu}
    near = {name: tensor.contiguous().clone() for name, tensor in tensors.items() if tensor.is_cpu}
    if far:
        sizes = [tensor.numel() * tensor.element_size() for tensor in far.values()]
        pieces = torch.split(torch.cat([tensor.reshape(-1).view(torch.uint8) for tensor in far.values()]).cpu(), sizes)
        for (name, tensor), piece in zip(far.items(), pieces, strict=True):
            near[name] = piece.clone().view(tensor.dtype).view(tensor.shape)  # a clone is aligned for its type
    return near


def _strip(tree: Any, place: str, tensors: dict[str, Tensor]) -> Any:
    """The tree with markers for its tensors, which are collected in `tensors` by their path."""
    if isinstance(tree, Tensor):
        tensors[place] = tree.detach()
        return TENSOR
    if isinstance(tree, Mapping):
        numbered = any(isinstance(key, int) for key in tree)
        made = {str(key): _strip(value, f"{place}/{key}", tensors) for key, value in tree.items()}
        return made | {NUMBERED: True} if numbered else made
    if isinstance(tree, list | tuple):
        return [_strip(value, f"{place}/{i}", tensors) for i, value in enumerate(tree)]
    return tree


def _fill(tree: Any, place: str, tensors: Mapping[str, Tensor]) -> Any:
    if tree == TENSOR:
        return tensors[place]
    if isinstance(tree, dict):
        numbered = tree.pop(NUMBERED, False)
        made = {key: _fill(value, f"{place}/{key}", tensors) for key, value in tree.items()}
        return {int(key): value for key, value in made.items()} if numbered else made
    if isinstance(tree, list):
        return [_fill(value, f"{place}/{i}", tensors) for i, value in enumerate(tree)]
    return tree
