"""Models by name: `create_model("resnet20", shape=(3, 32, 32), num_classes=10)`; each gives logits and features.

Each name stands for a dataclass: its fields are the hyper-parameters, and `body(shape)` gives the network up to its features
and their number. `create_model` adds a scale before and a head after it.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import torch
from torch import nn

from mohs._core.specs import as_spec, create_spec
from mohs._core.validation import check_whole
from mohs.heads import create_head
from mohs.models.alexnet import AlexNet
from mohs.models.amc_nets import AMCMnist, ConvLarge, ConvSmall
from mohs.models.convmixer import ConvMixer
from mohs.models.efficientnet_lite import EfficientNetLite
from mohs.models.input_scale import scale_of
from mohs.models.layers import Body, Shape
from mohs.models.mnist_nets import Mnist, MnistAttack
from mohs.models.network import Network, Scale
from mohs.models.pacs_net import CNN10
from mohs.models.resnet import ResNet9, ResNet18, ResNet20, ResNet32, ResNet44, ResNet56
from mohs.models.small import CNN, MLP, Linear, Toy
from mohs.models.vgg import VGG
from mohs.models.zoo import IMAGENET, Timm, Torchvision

__all__ = ["MODELS", "Network", "Scale", "create_model", "default_model", "model_spec", "scale_of"]


class Model(Protocol):
    """Hyper-parameters, and the body they define."""

    formula: ClassVar[str]
    purpose: ClassVar[str]

    def body(self, shape: Shape) -> Body: ...


MODELS: dict[str, type[Model]] = {
    "linear": Linear,
    "mlp": MLP,
    "toy": Toy,
    "cnn": CNN,
    "resnet9": ResNet9,
    "resnet18": ResNet18,
    "resnet20": ResNet20,
    "resnet32": ResNet32,
    "resnet44": ResNet44,
    "resnet56": ResNet56,
    "vgg": VGG,
    "alexnet": AlexNet,
    "convmixer": ConvMixer,
    "conv_large": ConvLarge,
    "conv_small": ConvSmall,
    "amc_mnist": AMCMnist,
    "mnist": Mnist,
    "mnist_attack": MnistAttack,
    "cnn10": CNN10,
    "efficientnet_lite": EfficientNetLite,
    "torchvision": Torchvision,
    "timm": Timm,
}
ZOOS = ("torchvision", "timm")
EMBEDDING = 64  # features of at least this width are taken for embeddings, for which a linear head suffices


def create_model(
    spec: str | Mapping[str, Any],
    *,
    shape: Shape,
    num_classes: int,
    head: str | Mapping[str, Any] | None = None,
    scale: Scale | None = None,
    seed: int = 0,
) -> Network:
    """A network by name.

    Args:
        spec: name and hyper-parameters: "resnet20", "mlp:hidden=64", "torchvision:resnet18:size=224", {"name": "cnn"}.
        shape: shape of one input, (C, H, W) or (D,).
        num_classes: number of classes.
        head: name of a head (see `create_head`), linear by default; "linear:bias=False" has no bias.
        scale: normalization of the inputs, from `scale_of`; by default pixels are divided by 255 and features left unchanged,
            and pretrained weights get ImageNet's mean and SD.
        seed: random seed of the weights. The body's weights do not depend on the head; the global random state is unchanged.

    Returns:
        The network, which returns logits; its method `outputs` returns logits and features.

    Example:
        >>> create_model("resnet20", shape=(3, 32, 32), num_classes=10)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """
    check_whole("num_classes", num_classes, 2)
    piece = create_spec(MODELS, "model", model_spec(spec))
    fixed = getattr(piece, "input_scale", None)
    if fixed is not None:  # pretrained weights expect it
        scale = Scale(torch.full((shape[0],), fixed[0]), torch.full((shape[0],), fixed[1]))
    elif scale is None:
        scale = plain_scale(shape[0], imagenet=getattr(piece, "pretrained", False))
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed the GPUs too, which are not forked
        body, features = piece.body(tuple(shape))
        return Network(body, head_of(head, features, num_classes), scale)


def model_spec(spec: str | Mapping[str, Any]) -> dict[str, Any]:
    """The spec as a mapping; "torchvision:resnet18:size=224" is {"name": "torchvision", "net": "resnet18", "size": 224}."""
    if isinstance(spec, str):
        zoo, _, rest = spec.partition(":")
        if zoo not in ZOOS or not rest:
            return as_spec(spec)
        fields = as_spec(re.sub("[:,]", ":", rest, count=1))  # "torchvision:resnet18,size=224" means the same
    else:
        fields = dict(spec)
        zoo, _, net = str(fields.get("name", "")).partition(":")
        if zoo not in ZOOS or not net:
            return fields
        fields["name"] = net
    return {"name": zoo, "net": fields.pop("name"), **fields}


def plain_scale(channels: int, *, imagenet: bool) -> Scale:
    """The identity, or ImageNet's mean and SD; of the same shape as the scale of `scale_of`, whose weights it can load."""
    if not imagenet:
        return Scale(torch.zeros(channels), torch.ones(channels))
    mean, sd = (torch.tensor(values) for values in IMAGENET)
    return Scale(mean, sd) if channels == 3 else Scale(mean.mean(0, True), sd.mean(0, True))


def head_of(head: str | Mapping[str, Any] | None, features: int, num_classes: int) -> nn.Module:
    """A head by name; linear by default."""
    fields = as_spec("linear" if head is None else head)
    name = fields.pop("name", None)
    if name is None:
        raise ValueError(f"a head needs a name; got the keys {', '.join(fields) or '(none)'}")
    if name != "linear":
        return create_head(name, features, num_classes, **fields)
    unknown = [key for key in fields if key != "bias"]
    if unknown:
        raise ValueError(f"linear has no field {unknown[0]!r}; its fields: bias")
    return nn.Linear(features, num_classes, bias=bool(fields.get("bias", True)))


def default_model(shape: Shape, kind: str, *, device: str | torch.device = "cpu") -> str:
    """The default model for inputs of this shape; kind: "images" or "features".

    Features: linear from 64 on (embeddings), else mlp. Images by their shorter side: cnn under 16 pixels, and up to 96 on a
    CPU; resnet9 up to 40 on a GPU; for larger images torchvision:resnet18 where torchvision is installed, else cnn.
    """
    if kind == "features":
        return "linear" if shape[0] >= EMBEDDING else "mlp"
    if kind != "images":
        raise ValueError(f"kind must be one of images, features, got {kind!r}")
    side, cpu = min(shape[1:]), torch.device(device).type == "cpu"
    if side <= (96 if cpu else 40):
        return "cnn" if cpu or side < 16 else "resnet9"
    return "torchvision:resnet18" if importlib.util.find_spec("torchvision") else "cnn"
