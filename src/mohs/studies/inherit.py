"""A recipe like another: the same rows on other data, with another network.

    [study]   like = "table8.toml", a recipe in the same folder; rows: the labels of those that are taken, where not all are
    [base]    what differs from its base; [smoke], [[measure]], [[sweep]] and [[row]] stand in place of its own where given

What a row claims is taken along under the new study's name: gr/table8/plain becomes gr/table8-fashion/plain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mohs._core.specs import as_spec

TAKEN = ("smoke", "measure", "sweep", "row")


def completed(path: Path, given: dict[str, Any], read: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
    """The recipe with what it takes from the one it is like; itself where it is like none."""
    study = dict(given.get("study", {}))
    like, labels = study.pop("like", None), study.pop("rows", None)
    if like is None:
        if labels is not None:
            raise ValueError(f"{path}: [study] rows says what to take from another recipe: it goes with like")
        return given
    other_path = Path(path).parent / str(like)
    if not other_path.is_file():
        raise ValueError(f"{path}: [study] like = {like!r}, which is no file beside it")
    other = read(other_path)
    if "like" in other.get("study", {}):
        raise ValueError(f"{path}: [study] like = {like!r}, which is itself like another: name that one")
    made = {**{key: other[key] for key in TAKEN if key in other}, **given, "study": study}
    made["base"] = merged(other.get("base", {}), given.get("base", {}))
    if "row" in given and labels is not None:
        raise ValueError(f"{path}: [study] rows takes rows of {like}, and [[row]] gives others: one of the two")
    if "row" not in given:
        made["row"] = [_row(one, str(other["study"].get("id")), str(study.get("id"))) for one in _taken(path, other, labels)]
    return made


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The base with the changes; "loss.q" changes one field of a spec, a whole spec replaces the old one."""
    made = dict(base)
    for key, value in changes.items():
        name, _, part = key.partition(".")
        old = made.get(name) or {}
        if part and not isinstance(old, str | Mapping):
            raise ValueError(f"{key}: {name} has no fields, it is {old!r}")
        made[name] = {**(as_spec(old) if isinstance(old, str) else old), part: value} if part else value
    return made


def _taken(path: Path, other: Mapping[str, Any], labels: list[str] | None) -> list[dict[str, Any]]:
    rows = {str(row.get("label")): row for row in other.get("row", [])}
    for label in labels or ():
        if label not in rows:
            raise ValueError(f"{path}: [study] rows has {label!r}, which is no row there; rows: {', '.join(rows)}")
    return list(rows.values()) if labels is None else [rows[label] for label in labels]


def _row(row: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    claims = row.get("claim", [])
    listed = [claims] if isinstance(claims, str) else claims
    return {**row, "claim": [new + one[len(old) :] for one in listed if one == old or one.startswith(f"{old}/")]}
