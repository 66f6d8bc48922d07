"""Losses as words of a command line: `gce:q=0.5` is `create_loss("gce", q=0.5)`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mohs._core.specs import parse_spec

if TYPE_CHECKING:
    from torch import nn


def loss_from_spec(text: str) -> nn.Module:
    """The loss that a word of the command line names."""
    from mohs.losses import create_loss

    name, fields = parse_spec(text)
    try:
        return create_loss(name, **fields)
    except TypeError as error:
        raise ValueError(f"{text!r}: {error}") from error
