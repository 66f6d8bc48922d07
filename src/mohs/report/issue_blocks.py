"""The report's section on issues besides labels: for each the number of examples, advice, and the worst examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from mohs._core.plain_text import shorten
from mohs.audit.gallery_rows import worst_rows
from mohs.audit.result import AuditResult
from mohs.issues.catalog import ISSUES
from mohs.issues.found import Found
from mohs.report.gallery import excerpt, fields_of, title
from mohs.report.pictures import Picture, shown

DETAILS, EXCERPT = 30, 160  # rows of the table of details; characters of a text


@dataclass(frozen=True)
class Member:
    """One example of an issue; starts: whether a new group of copies begins with it."""

    title: str
    label: str
    score: float
    picture: Picture | None
    excerpt: str | None
    starts: bool


@dataclass(frozen=True)
class Block:
    """One issue that was found: its title, size, meaning and advice, the worst examples, and its details as a table."""

    key: str
    title: str
    size: str
    meaning: str
    advice: str
    members: Sequence[Member]
    header: Sequence[str]
    details: Sequence[Sequence[str]]
    more: int


def issue_blocks(result: AuditResult) -> list[Block]:
    """A block for each issue that was found, the most serious first."""
    return (
        []
        if result.issues is None
        else [_block(name, found, result) for name, found in result.issues.found.items() if found.share]
    )


def not_found(result: AuditResult) -> list[str]:
    """Titles of the issues that were searched for and not found."""
    return (
        []
        if result.issues is None
        else [ISSUES[name].title.lower() for name, found in result.issues.found.items() if not found.share]
    )


def issue_sentence(result: AuditResult) -> str | None:
    """The issues in one sentence; None if they were not searched for."""
    if result.issues is None:
        return None
    found = [f"{ISSUES[name].title.lower()} ({_size(one)})" for name, one in result.issues.found.items() if one.share]
    return f"Besides labels: {', '.join(found)}." if found else "No other issues were found."


def _block(name: str, found: Found, result: AuditResult) -> Block:
    about = ISSUES[name]
    header = list(dict.fromkeys(key for one in found.details for key in one))
    rows = [[_shown(one.get(key)) for key in header] for one in found.details[:DETAILS]]
    members = _members(name, result)
    more = max(0, len(found.details) - DETAILS)
    exact = None if result.issues is None else result.issues.found.get("exact_duplicate")
    elsewhere = name == "near_duplicate" and exact is not None and exact.share  # `worst_rows`
    advice = f"{about.advice} The exact ones are shown above." if elsewhere else about.advice
    return Block(name, about.title, _size(found), about.meaning, advice, members, header, rows, more)


def _size(found: Found) -> str:
    if found.part is not None:
        return f"{found.number}"
    return "all examples" if found.flag.all() else f"{found.number:,}, {found.share:.1%}"


def _members(name: str, result: AuditResult) -> list[Member]:
    assert result.issues is not None
    found, rows = result.issues.found[name], worst_rows(result.issues, name)
    entries = result.table.take(pa.array(rows, pa.int64())).to_pylist()
    pictures = [None] * len(rows) if result.thumbnails is None else result.thumbnails(rows)
    groups = [None if found.group is None else int(found.group[row]) for row in rows]
    made = []
    for place, (row, entry, picture) in enumerate(zip(rows, entries, pictures, strict=True)):
        text = excerpt(entry.get("text")) or "; ".join(f"{key}: {value}" for key, value in fields_of(entry.get("fields")))
        made.append(
            Member(
                title({"path": entry.get("path"), "id": str(entry["id"])}),  # type: ignore[typeddict-item]
                shorten(entry["label"]),
                float(found.score[row]),
                shown(picture),
                shorten(text, EXCERPT) if text else None,
                groups[place] is not None and (place == 0 or groups[place] != groups[place - 1]),
            )
        )
    return made


def _shown(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:,.3g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else shorten(value, 120)
