"""The heads by name: last layers that classify on the sphere. One idea a file; each is a function and a Module."""

from __future__ import annotations

from torch import nn

from mohs._core.specs import create
from mohs.heads.arcface import ArcFaceHead
from mohs.heads.avh import AVHHead
from mohs.heads.cosface import CosFaceHead
from mohs.heads.lsoftmax import LSoftmaxHead
from mohs.heads.normface import NormFaceHead
from mohs.heads.sphereface import SphereFaceHead

HEADS: dict[str, type[nn.Module]] = {
    "normface": NormFaceHead,
    "cosface": CosFaceHead,
    "arcface": ArcFaceHead,
    "sphereface": SphereFaceHead,
    "lsoftmax": LSoftmaxHead,
    "avh": AVHHead,
}


def create_head(name: str, in_features: int, num_classes: int, **fields: object) -> nn.Module:
    """The head of that name with these fields: `create_head("cosface", 512, 10, margin=0.3)`."""
    return create(HEADS, "head", name, in_features, num_classes, **fields)
