"""Components by name: {"name": "gce", "q": 0.5} or "gce:q=0.5" becomes TABLE["gce"](q=0.5); errors list the known names."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Mapping
from typing import Any, TypeVar

Component = TypeVar("Component")
OUTER_COMMA = re.compile(r",(?![^\[(]*[\])])")  # not one inside a list


def create(table: Mapping[str, type[Component]], kind: str, name: str, /, *args: Any, **fields: Any) -> Component:
    """The component of that name with these fields; `kind` names what the table holds, in errors."""
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


def create_spec(table: Mapping[str, type[Component]], kind: str, spec: Mapping[str, Any]) -> Component:
    """`create` for a mapping with the key "name" and the fields."""
    if "name" not in spec:
        raise ValueError(f"a {kind} needs a name; got the keys {', '.join(spec) or '(empty)'}; known names: {', '.join(table)}")
    return create(table, kind, spec["name"], **{key: value for key, value in spec.items() if key != "name"})


def parse_spec(text: str) -> tuple[str, dict[str, Any]]:
    """ "name:key=value,key=value" -> (name, {key: value}); values are Python literals, otherwise strings."""
    name, _, rest = text.partition(":")
    fields: dict[str, Any] = {}
    for part in filter(None, OUTER_COMMA.split(rest)):
        key, equals, value = part.partition("=")
        if not equals:
            raise ValueError(f"{text!r}: expected key=value after the colon, got {part!r} (for example gce:q=0.5)")
        fields[key.strip()] = _literal(value.strip())
    return name.strip(), fields


def as_spec(given: str | Mapping[str, Any]) -> dict[str, Any]:
    """A spec as a mapping: {"name": ...} itself, or parsed from "name:key=value"."""
    if isinstance(given, Mapping):
        return dict(given)
    name, fields = parse_spec(given)
    return {"name": name, **fields}


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def safe_name(text: str) -> str:
    """The text as part of a file name: characters other than ASCII letters, digits, points and underscores become underscores."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "._") else "_" for c in text)


def snake(camel: str) -> str:
    """CamelCase -> snake_case, abbreviations kept together: EuclideanContrastive -> euclidean_contrastive, ADR -> adr."""
    parts = [c if not c.isupper() or i == 0 or camel[i - 1].isupper() else f"_{c}" for i, c in enumerate(camel)]
    return "".join(parts).lower()
