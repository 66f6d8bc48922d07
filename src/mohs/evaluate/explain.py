"""Grad-CAM: the parts of an image that a class's logit depends on, for a whole data set, with metrics.

    cam = ReLU Σ_c α_c A_c,   α_c = mean over places of ∂z_k/∂A_c          A (C, H, W): the last feature map (`cam_layer`)

resized to the image and divided by its maximum; a map without positive evidence stays 0. The class is the predicted one
or a given one. Needs captum (the extra "explain"). Maps are as coarse as the feature map: 7×7 for a ResNet.
Selvaraju et al., "Grad-CAM" (ICCV 2017), eqs. 1 and 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from mohs._core.eval_mode import eval_mode
from mohs._core.validation import check_between
from mohs.evaluate.cam_layer import CamLayer, find_cam_layer
from mohs.evaluate.cam_metrics import area, deletion, insertion, map_entropy
from mohs.evaluate.outputs import input_batches, logits_of, logits_over
from mohs.evaluate.validate_inputs import class_labels


@dataclass(frozen=True, eq=False)
class Explanation:
    """Per image (N,): area above half-maximum, entropy, deletion, insertion; and the maps (N, H, W)."""

    layer: str
    area: Tensor
    entropy: Tensor
    deletion: Tensor
    insertion: Tensor
    maps: Tensor = field(repr=False)

    @property
    def empty(self) -> float:
        """The share of images whose map is 0 everywhere."""
        return float(self.area.isnan().double().mean())

    def means(self) -> dict[str, float]:
        """The mean of each metric over the images; maps of 0 are left out."""
        return {name: float(getattr(self, name).nanmean()) for name in ("area", "entropy", "deletion", "insertion")}


def explain(
    model: nn.Module, images: Any, classes: Any = None, *, layer: str | None = None, steps: int = 20, batch_size: int = 64
) -> Explanation:
    """Maps and metrics of images (N, C, H, W), tensors or Examples, for given classes (N,) or the predicted ones."""
    check_between("steps", steps, 1)
    found, targets = _prepared(model, images, classes, layer, batch_size)
    parts = []
    with eval_mode(model, freeze=True) as device:
        for rows, x in input_batches(images, batch_size, device):
            own = targets[rows]
            maps = _cams(model, x, own, found)
            curves = [curve(model, x, maps, own, steps=steps) for curve in (deletion, insertion)]
            parts.append((area(maps), map_entropy(maps), *curves, maps))
    return Explanation(found.layer, *(torch.cat([part[i] for part in parts]).cpu() for i in range(5)))


def _prepared(model: nn.Module, images: Any, classes: Any, layer: str | None, batch_size: int) -> tuple[CamLayer, Tensor]:
    """The layer to use and the class of each image (N,)."""
    _, first = next(input_batches(images, 1, None))
    if first.dim() != 4:
        raise ValueError(f"images must have shape (N, C, H, W), got {('N', *first.shape[1:])}")
    found = find_cam_layer(model, first, layer=layer)
    logits = logits_over(model, images, batch_size=batch_size)
    if classes is None:
        return found, logits.argmax(1)
    return found, class_labels(classes, count=len(logits), classes=logits.shape[1], name="classes", device=logits.device)


def _cams(model: nn.Module, x: Tensor, targets: Tensor, found: CamLayer) -> Tensor:
    """Maps (n, H, W) of one batch, through captum."""
    try:
        from captum.attr import LayerGradCam  # type: ignore[import-untyped, import-not-found, unused-ignore]
    except ImportError as error:
        raise ImportError("Grad-CAM needs captum: pip install 'mohs[explain]'") from error
    with _mapped(model, found) as grid:
        method = LayerGradCam(lambda inputs: logits_of(model(inputs)), grid)
        cam = method.attribute(x, target=targets, relu_attributions=True).detach().float()
    cam = interpolate(cam, size=x.shape[-2:], mode="bilinear", align_corners=False).squeeze(1)
    largest = cam.amax((1, 2), keepdim=True)
    return cam / largest.masked_fill(largest == 0, 1.0)  # (n, H, W)


@contextmanager
def _mapped(model: nn.Module, found: CamLayer) -> Iterator[nn.Module]:
    """A module that gives the map as (N, C, H, W), inserted after the layer for captum to attribute to."""
    grid = nn.Identity()

    def hook(module: nn.Module, args: Any, out: Tensor) -> Tensor:
        return found.fold(grid(found.unfold(out)), out)

    with model.get_submodule(found.layer).register_forward_hook(hook):
        yield grid
