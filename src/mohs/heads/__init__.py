"""The heads by name: last layers that classify by angle. One idea per file; each is a function and a Module."""

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


def create_head(name: str, in_features: int, num_classes: int, /, **fields: object) -> nn.Module:
    """Create a head by name, to replace the last `nn.Linear` of a network.

    Args:
        name: A key of `HEADS`.
        in_features: Number of features D.
        num_classes: Number of classes K.
        **fields: Hyper-parameters of the head.

    Returns:
        A Module with class weights `weight` (K, D). `head(features, labels)` gives the logits to train on, with the
        margin of the labeled class; `head.logits(features)` gives label-free logits, to predict and record with.

    Example:
        >>> head = create_head("cosface", 512, 10, margin=0.3)
        >>> loss(head(features, labels), labels).backward()
    """
    return create(HEADS, "head", name, in_features, num_classes, **fields)
