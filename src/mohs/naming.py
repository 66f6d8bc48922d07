"""Pieces by name: a recipe's `{name = "gce", q = 0.5}` becomes TABLE["gce"](q=0.5), with errors that list what is known."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

Piece = TypeVar("Piece")


def create(table: Mapping[str, type[Piece]], kind: str, name: str, /, *args: Any, **fields: Any) -> Piece:
    """The piece of that name with these fields; `kind` is what the table holds, for the error."""
    if name not in table:
        raise ValueError(f"unknown {kind} {name!r}; known: {', '.join(table)}")
    known = [f.name for f in dataclasses.fields(table[name])]  # type: ignore[arg-type]
    unknown = [field for field in fields if field not in known]
    if unknown:
        raise ValueError(f"{name} has no field {unknown[0]!r}; its fields: {', '.join(known)}")
    try:
        return table[name](*args, **fields)
    except TypeError as error:  # a field without a default is missing
        raise ValueError(f"{name}: {str(error).partition('() ')[2] or error}; its fields: {', '.join(known)}") from error


def create_spec(table: Mapping[str, type[Piece]], kind: str, spec: Mapping[str, Any]) -> Piece:
    """`create` for a mapping with the key "name" beside the fields."""
    if "name" not in spec:
        raise ValueError(f"a {kind} needs a name; got the keys {', '.join(spec) or '(none)'}; known names: {', '.join(table)}")
    return create(table, kind, spec["name"], **{key: value for key, value in spec.items() if key != "name"})


def snake(camel: str) -> str:
    """CamelCase -> snake_case, abbreviations kept together: EuclideanContrastive -> euclidean_contrastive, ADR -> adr."""
    parts = [c if not c.isupper() or i == 0 or camel[i - 1].isupper() else f"_{c}" for i, c in enumerate(camel)]
    return "".join(parts).lower()
