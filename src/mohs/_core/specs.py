"""Components by name: {"name": "gce", "q": 0.5} or "gce:q=0.5" becomes TABLE["gce"](q=0.5); errors list the known names."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Mapping
from typing import Any, TypeVar

from mohs._core.validation import check_fields

Component = TypeVar("Component")
OUTER_COMMA = re.compile(r",(?![^\[(]*[\])])")  # not one inside a list


def create(table: Mapping[str, type[Component]], kind: str, name: str, /, *args: Any, **fields: Any) -> Component:
    """The component of that name, or "name:key=value", with these fields, whose types are validated; `kind` is for errors."""
    if isinstance(name, str) and ":" in name:
        name, given = parse_spec(name)
        fields = {**given, **fields}
    check_spec(table, kind, {**fields, "name": name})
    fields = {key: float(value) if type(value) is int and abs(value) >= 2**63 else value for key, value in fields.items()}
    try:
        return table[name](*args, **fields)
    except TypeError as error:  # a field without a default is missing
        known = (f.name for f in dataclasses.fields(table[name]))  # type: ignore[arg-type]
        raise ValueError(f"{name}: {str(error).partition('() ')[2] or error}; its fields: {', '.join(known)}") from error
    except (ArithmeticError, RuntimeError) as error:  # torch's errors for numbers that the field types allow
        raise ValueError(f"{name}: {error}") from error


def create_spec(table: Mapping[str, type[Component]], kind: str, spec: Mapping[str, Any]) -> Component:
    """`create` for a mapping with the key "name" and the fields."""
    check_spec(table, kind, spec)
    return create(table, kind, spec["name"], **{key: value for key, value in spec.items() if key != "name"})


def check_spec(table: Mapping[str, type[Any]], kind: str, spec: Mapping[str, Any], *, own: tuple[str, ...] = ()) -> None:
    """Validate a spec's name, and the names and types of its fields; own: fields that the caller uses itself."""
    if "name" not in spec:
        raise ValueError(
            f"a {kind} needs a name; got the keys {', '.join(map(str, spec)) or '(empty)'}; known names: {', '.join(table)}"
        )
    name = spec["name"]
    if not isinstance(name, str) or name not in table:
        raise ValueError(f"unknown {kind} {name!r}; known: {', '.join(table)}")
    known = [f.name for f in dataclasses.fields(table[name])]
    unknown = [field for field in spec if field not in ("name", *own, *known)]
    if unknown:
        raise ValueError(f"{name} has no field {unknown[0]!r}; its fields: {', '.join(known)}")
    check_fields(table[name], {key: value for key, value in spec.items() if key not in ("name", *own)}, where=name)


def parse_spec(text: str) -> tuple[str, dict[str, Any]]:
    """ "name:key=value,key=value" -> (name, {key: value}); values are Python literals, otherwise strings."""
    if not isinstance(text, str):
        raise ValueError(f'expected a name such as "gce:q=0.5" or a mapping with a name, got {text!r}')
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
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):  # the last two: of thousands of brackets
        return text


def safe_name(text: str) -> str:
    """The text as part of a file name: characters other than ASCII letters, digits, points and underscores become underscores."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "._") else "_" for c in text)


def snake(camel: str) -> str:
    """CamelCase -> snake_case, abbreviations kept together: EuclideanContrastive -> euclidean_contrastive, ADR -> adr."""
    parts = [c if not c.isupper() or i == 0 or camel[i - 1].isupper() else f"_{c}" for i, c in enumerate(camel)]
    return "".join(parts).lower()
