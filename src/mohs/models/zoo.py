"""Any classifier of torchvision or timm by name, without its head: `torchvision:resnet18`, `timm:convnext_tiny`.

The last linear layer (`find_head`) of a torchvision network is removed and its inputs are the features; layers before it, such
as the hidden layers of its AlexNet and VGG, stay. timm removes its heads itself. Gray images are repeated to three channels,
and `size` resizes images on the device (bilinear), for networks made for 224 pixels. Auxiliary classifiers (GoogLeNet,
Inception) are removed. `pretrained` downloads the weights once, so it needs internet access.
Needs the extra `vision`.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from mohs.heads.find_head import find_head
from mohs.models.layers import Body, Shape, check_fields, image_shape

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # mean and SD per channel for pretrained weights
WITH_AUXILIARY = ("googlenet", "inception_v3")
SHOWN = 6  # names that an error suggests


class Entry(nn.Module):
    """(N, 1 or 3, H, W) -> (N, 3, size, size), or (N, 3, H, W) without a size."""

    def __init__(self, size: int | None) -> None:
        super().__init__()
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        x = x.expand(-1, 3, -1, -1).contiguous(memory_format=torch.channels_last)
        if self.size is None:
            return x
        return interpolate(x, (self.size, self.size), mode="bilinear", antialias=True)


@dataclass(frozen=True, kw_only=True)
class ZooModel:
    """A network of another package: its name there, whether to load pretrained weights, and the size to resize images to."""

    net: str
    pretrained: bool = False
    size: int | None = None

    def __post_init__(self) -> None:
        check_fields(self)


class Torchvision(ZooModel):
    """net: one of `torchvision.models.list_models(torchvision.models)`."""

    formula: ClassVar[str] = "torchvision:NAME"
    purpose: ClassVar[str] = "any classifier of torchvision, without its last linear layer"

    def body(self, shape: Shape) -> Body:
        models = vision("torchvision").models
        check_net("torchvision", self.net, models.list_models(models))
        options: dict[str, Any] = {"aux_logits": False} if self.net in WITH_AUXILIARY else {}
        if options and not self.pretrained:
            options["init_weights"] = True
        model = models.get_model(self.net, weights="DEFAULT" if self.pretrained else None, **options)
        head = find_head(model)
        features = head.weight.shape[1]
        model.set_submodule(head.name, nn.Identity())
        return entered(f"torchvision:{self.net}", model, shape, self.size), features


class Timm(ZooModel):
    """net: one of `timm.list_models()`, with or without the tag of its weights."""

    formula: ClassVar[str] = "timm:NAME"
    purpose: ClassVar[str] = "any classifier of timm, without its head"

    def body(self, shape: Shape) -> Body:
        timm = vision("timm")
        check_net("timm", self.net.partition(".")[0], timm.list_models())
        model = timm.create_model(self.net, pretrained=self.pretrained, num_classes=0)
        body = entered(f"timm:{self.net}", model, shape, self.size)
        return body, tried(f"timm:{self.net}", body, shape).shape[1]


def vision(package: str) -> ModuleType:
    """The package, or an error that says how to install it."""
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:  # the package is installed, one of its dependencies is not
            raise
        raise ModuleNotFoundError(f"{package} is not installed: pip install 'mohs[vision]'", name=package) from error


def check_net(package: str, net: str, known: Sequence[str]) -> None:
    """Validate that the package has such a network; the error suggests names."""
    if net not in known:
        near = difflib.get_close_matches(net, known, SHOWN, cutoff=0.4) or list(known)[:SHOWN]
        raise ValueError(f"{package} has no classifier {net!r}; known: {', '.join(near)} and more, {len(known)} in all")


def entered(name: str, model: nn.Module, shape: Shape, size: int | None) -> nn.Sequential:
    """The model behind its entry, validated by a forward pass of one input."""
    channels, _, _ = image_shape(name, shape, smallest=1)
    if channels not in (1, 3):
        raise ValueError(f"{name} takes images of 1 or 3 channels, got {channels}")
    body = nn.Sequential(Entry(size), model)
    tried(name, body, shape)
    return body


@torch.no_grad()
def tried(name: str, body: nn.Sequential, shape: Shape) -> Tensor:
    """Features of one black image, in eval mode; an error that suggests a size where the network does not take this one."""
    was_training = body.training
    try:
        features: Tensor = body.eval()(torch.zeros(1, *shape))
    except (RuntimeError, ValueError, AssertionError) as error:  # networks raise these for unsupported sizes
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        entry = body[0].size or " or ".join(str(side) for side in sorted(set(shape[1:])))
        raise ValueError(
            f"{name} cannot take images of {entry} pixels ({reason}): set size=224, or the size it was made for"
        ) from error
    finally:
        body.train(was_training)
    if features.dim() != 2:
        raise ValueError(
            f"{name} gives {tuple(features.shape[1:])} for an image where features (D,) are needed: choose another net"
        )
    return features
