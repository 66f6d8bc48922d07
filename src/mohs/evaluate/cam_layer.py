"""The feature map that Grad-CAM uses, found by running the model once: that of the last convolution, or the tokens.

For convolutional nets: the last module to give a map of the size that the last convolution gives (so with its batch norm,
activation, shortcut and other branches), if that is more than one pixel. For transformers: the last layer norm at which the
class's score still depends on the patches (with a class token the final one does not); tokens become a grid of the image's
proportions after up to eight leading extra tokens (class, distillation, registers). Norms over (N, H, W, C) are grids
already. Modules that run more than once are skipped.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mohs._core.eval_mode import eval_mode
from mohs.evaluate.outputs import logits_of

EXTRA_TOKENS = 8
NORMS = ("LayerNorm", "RMSNorm")  # by name, because libraries define their own


@dataclass(frozen=True)
class CamLayer:
    """A layer's name, and how its output becomes (N, C, H, W): "map", "grid", or "tokens" with `extra` leading ones on a grid."""

    layer: str
    kind: str
    extra: int = 0
    grid: tuple[int, int] = (0, 0)

    def unfold(self, out: Tensor) -> Tensor:
        """The layer's output as (N, C, H, W)."""
        if self.kind == "tokens":
            return out[:, self.extra :].transpose(1, 2).reshape(len(out), -1, *self.grid)
        return out.movedim(-1, 1) if self.kind == "grid" else out

    def fold(self, grid: Tensor, out: Tensor) -> Tensor:
        """The inverse of `unfold`, as a copy for the model to continue with; the leading tokens come from its output."""
        if self.kind == "tokens":
            return torch.cat([out[:, : self.extra], grid.flatten(2).transpose(1, 2)], 1)
        return (grid.movedim(1, -1) if self.kind == "grid" else grid).clone()


def find_cam_layer(model: nn.Module, images: Tensor, *, layer: str | None = None) -> CamLayer:
    """The layer of this model for images (n, C, H, W); layer: its name, to choose another one."""
    ran = _ran(model, images[:1])
    if layer is not None:
        return _of_layer(ran, layer, images, type(model).__name__)
    convolutions = [i for i, (_, module, out) in enumerate(ran) if isinstance(module, nn.Conv2d) and _is_map(out)]
    tokens = [i for i, (_, module, out) in enumerate(ran) if _is_norm(module) and _as_tokens(module, out, images) is not None]
    if tokens and _by_tokens(ran, convolutions, tokens):
        for i in reversed(tokens):
            found = _as_tokens(ran[i][1], ran[i][2], images, name=ran[i][0])
            if found is not None and _patches_matter(model, images[:1], found):
                return found
    if not convolutions:
        raise ValueError(
            f"{type(model).__name__} has no convolution with a map of more than one pixel and no grid of tokens: "
            f'pass layer="name" of a module that gives a map ({_listed(ran)})'
        )
    size = ran[convolutions[-1]][2].shape[2:]
    last = max(i for i, (_, _, out) in enumerate(ran) if out.dim() == 4 and out.shape[2:] == size)
    return CamLayer(ran[last][0], "map")


def _by_tokens(ran: list[tuple[str, nn.Module, Tensor]], convolutions: list[int], tokens: list[int]) -> bool:
    """Whether the model ends in tokens: after its last convolution, which is the only one or is followed by a sequence."""
    if not convolutions:
        return True
    return tokens[-1] > convolutions[-1] and (len(convolutions) == 1 or ran[tokens[-1]][2].dim() == 3)


def _ran(model: nn.Module, image: Tensor) -> list[tuple[str, nn.Module, Tensor]]:
    """Name, module and output of every module that ran once and returned a tensor, in the order of completion, except the model
    itself.
    """
    ran: list[tuple[str, nn.Module, Tensor]] = []
    times: Counter[str] = Counter()

    def watch(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, args: Any, out: Any) -> None:
            times[name] += 1
            if isinstance(out, Tensor):
                ran.append((name, module, out))

        return hook

    handles = [module.register_forward_hook(watch(name)) for name, module in model.named_modules() if name]
    try:
        with torch.no_grad(), eval_mode(model) as device:
            model(image if device is None else image.to(device))
    finally:
        for handle in handles:
            handle.remove()
    return [entry for entry in ran if times[entry[0]] == 1]


def _patches_matter(model: nn.Module, image: Tensor, found: CamLayer) -> bool:
    """Whether the top logit has any gradient by the map's cells."""
    caught: list[Tensor] = []

    def hook(module: nn.Module, args: Any, out: Tensor) -> Tensor:
        caught.append(found.unfold(out).detach().requires_grad_())
        return found.fold(caught[0], out)

    with (
        eval_mode(model, freeze=True) as device,
        model.get_submodule(found.layer).register_forward_hook(hook),
        torch.enable_grad(),
    ):
        logits = logits_of(model(image if device is None else image.to(device)))
        (gradient,) = torch.autograd.grad(logits.max(), caught[0], allow_unused=True)
    return gradient is not None and bool((gradient != 0).any())


def _of_layer(ran: list[tuple[str, nn.Module, Tensor]], layer: str, images: Tensor, kind: str) -> CamLayer:
    entry = next((entry for entry in ran if entry[0] == layer), None)
    if entry is None:
        raise ValueError(f"layer={layer!r} is not a module of {kind} that runs once and returns a tensor ({_listed(ran)})")
    found = _as_tokens(entry[1], entry[2], images, name=layer)
    if found is not None:
        return found
    if not _is_map(entry[2]):
        raise ValueError(f"layer={layer!r} gives shape {tuple(entry[2].shape)}, neither a map nor tokens ({_listed(ran)})")
    return CamLayer(layer, "map")


def _as_tokens(module: nn.Module, out: Tensor, images: Tensor, *, name: str = "") -> CamLayer | None:
    """Tokens (1, T, D) or a grid (1, H, W, D) of a norm; None for anything else."""
    if out.dim() == 4 and _is_norm(module) and out.shape[-1] == _width(module) and min(out.shape[1:3]) > 1:
        return CamLayer(name, "grid")
    if out.dim() != 3:
        return None
    height, width = images.shape[-2:]
    for extra in range(EXTRA_TOKENS + 1):
        cells = out.shape[1] - extra
        rows = round(math.sqrt(max(cells, 0) * height / width))
        if rows > 1 and cells % rows == 0 and abs(cells / rows * height - rows * width) < 0.5 * max(height, width):
            return CamLayer(name, "tokens", extra, (rows, cells // rows))
    return None


def _is_map(out: Tensor) -> bool:
    return out.dim() == 4 and out.shape[2] * out.shape[3] > 1


def _is_norm(module: nn.Module) -> bool:
    return any(kind in type(module).__name__ for kind in NORMS) and "2d" not in type(module).__name__


def _width(module: nn.Module) -> int:
    shape = getattr(module, "normalized_shape", (-1,))
    return int(shape[-1])


def _listed(ran: list[tuple[str, nn.Module, Tensor]], shown: int = 8) -> str:
    maps = [f"{name!r} {tuple(out.shape[1:])}" for name, _, out in ran if out.dim() in (3, 4)]
    return f"maps, the last first: {', '.join(maps[: -shown - 1 : -1])}" if maps else "none does"
