"""Losses as words of a command line: `gce:q=0.5` is `create_loss("gce", q=0.5)`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn


def parse_spec(text: str) -> tuple[str, dict[str, object]]:
    """ "name:key=value,key=value" -> (name, {key: value}); values are Python literals, anything else a string."""
    name, _, rest = text.partition(":")
    fields: dict[str, object] = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        if not equals:
            raise ValueError(f"{text!r}: expected key=value after the colon, got {part!r} (for example gce:q=0.5)")
        fields[key.strip()] = _literal(value.strip())
    return name.strip(), fields


def loss_from_spec(text: str) -> nn.Module:
    """The loss that a word of the command line names."""
    from mohs.losses import create_loss

    name, fields = parse_spec(text)
    try:
        return create_loss(name, **fields)
    except TypeError as error:
        raise ValueError(f"{text!r}: {error}") from error


def _literal(text: str) -> object:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
