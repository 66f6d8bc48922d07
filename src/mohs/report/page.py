"""The audit's report: one HTML file that needs no network and no server, and in which nothing from the data can run.

    write_report(result, "report.html")      write_report(load_audit("runs/a1b2"), "report.html")

The page's content-security policy lists its scripts by hash. Names from the data pass through Jinja's escaping and `visible`,
values through `page_json`. Charts need Altair and vl-convert (the `report` extra); without them the page shows their numbers
as tables and CSV downloads.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from mohs._core.files import written_whole
from mohs._core.plain_text import page_json, shorten, visible
from mohs.audit.gallery_rows import GROUPS, TO_CHECK
from mohs.audit.result import AuditResult
from mohs.hardness.table import VERDICTS
from mohs.report.changes_block import changes_since
from mohs.report.data_map import DataMap, data_map
from mohs.report.drawings import specification
from mohs.report.figures import Figure, figures
from mohs.report.gallery import Card, cards, examples_to_ask, flagged, names_of, suspicious_rows, title
from mohs.report.issue_blocks import issue_blocks, not_found
from mohs.report.pictures import shown
from mohs.report.summary import Kind, kinds, next_steps, noise_figure, noise_sentence, scale_end, sentences, training_sentence
from mohs.report.verdict_labels import NOT_JUDGED, css_name, label_of, shown_order

TEMPLATES = Path(__file__).parent / "templates"
CHART_SCRIPTS = ("page.js", "charts.js")
SCRIPTS = (*CHART_SCRIPTS, "data_map.js", "decisions.js", "gallery.js")
LEFT_OUT_SHOWN = 500


def write_report(result: AuditResult, out: str | Path) -> Path:
    """Write the report of an audit as one HTML file.

    Args:
        result: What `mohs.audit` returned, or `mohs.load_audit` read back.
        out: Path of the page; it ends in .html and its folder exists.

    Returns:
        The path. The file is written completely or not at all.
    """
    out = Path(out)
    check_report_path(out)
    with written_whole(out, sync=False) as part:
        part.write_text(page(result), encoding="utf-8", newline="\n")
    return out


def check_report_path(out: Path) -> None:
    """Validate, before any work, that a report can be written to this path."""
    if out.suffix not in (".html", ".htm"):
        raise ValueError(f"{out}: the report is an HTML page; give the file the ending .html")
    if not out.parent.is_dir():
        raise ValueError(f"{out}: the folder {out.parent} does not exist; create it first")


def page(result: AuditResult) -> str:
    """The complete page as text."""
    drawn, whole = figures(result), result.counted is None
    names = names_of(result.table, result.classes)
    points = data_map(result.table, names) if whole else None
    found = cards(result.table, names) if whole else []
    bundle = chart_script()
    own = "\n".join((TEMPLATES / name).read_text(encoding="utf-8") for name in (SCRIPTS if whole else CHART_SCRIPTS))
    scripts = [script for script in (bundle, own) if script]
    data = {
        "hash": result.data_hash,
        "classes": [str(name) for name in names],
        "shown": [shorten(name) for name in names],
        "verdicts": [*VERDICTS, NOT_JUDGED],
        "cards": [[card["id"], card["label"], card["suggested"]] for card in found],
        "flagged": flagged(result.table, names) if whole else [],
        "map": None
        if points is None
        else {"count": points.count, "xLimit": points.x_limit, "x": points.x_title, "y": points.y_title},
        "onMap": _on_map(found, points),
        "figures": {figure.key: _figure_data(figure, charts=bool(bundle)) for figure in drawn},
    }
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            **_words(result),
            charts=bool(bundle),
            sections=_by_section(drawn),
            points=points,
            cards=list(_shown(found, result, [shorten(name) for name in names])),
            groups=list(_groups(found, result)),
            changes=changes_since(result),
            whole=whole,
            suspicious=[] if whole else suspicious_rows(result.table),
            issue_blocks=issue_blocks(result),
            not_found=not_found(result),
            checked=result.issues is not None,
            style=Markup((TEMPLATES / "page.css").read_text(encoding="utf-8")),
            policy=content_policy(scripts),
            scripts=[Markup(script) for script in scripts],
            data=Markup(page_json(data)),
        )
    )


def content_policy(scripts: Sequence[str]) -> str:
    """The content-security policy that allows these scripts and nothing else."""
    hashes = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{value}'" for value in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    )


@lru_cache
def chart_script() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script; empty without the `report` extra."""
    if find_spec("altair") is None or find_spec("vl_convert") is None:
        return ""
    import vl_convert

    script: str = vl_convert.javascript_bundle()  # type: ignore[call-arg]
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


@lru_cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value,
    )
    filters: dict[str, Any] = {
        "short": shorten,
        "percent": lambda share: f"{share:.1%}",
        "number": lambda n: f"{n:,}",
        "chance": _chance,
        "css": css_name,
    }
    environment.filters |= filters
    return environment


def _words(result: AuditResult) -> dict[str, Any]:
    return {
        "name": result.name,
        "data_hash": result.data_hash,
        "total": result.totals.rows,
        "kinds": kinds(result),
        "tiles": _tiles(result),
        "colors": {css_name(name): label_of(name).color for name in (*VERDICTS, NOT_JUDGED)},
        "sentences": sentences(result),
        "estimate": result.estimate,
        "top": scale_end(result),
        "noise": noise_sentence(result),
        "noise_figure": noise_figure(result),
        "training": training_sentence(result),
        "steps": next_steps(result),
        "annotators": [] if result.annotators is None else result.annotators.to_pylist(),
        "asked": examples_to_ask(result.table),
        "classes": [shorten(name) for name in result.classes],
        "left_out": list(result.left_out)[:LEFT_OUT_SHOWN],
        "left_out_count": len(result.left_out),
        "facts": [(name.replace("_", " "), _fact(value)) for name, value in result.facts.items()],
    }


def _tiles(result: AuditResult) -> list[Kind]:
    """The verdicts in the order of the page: what needs attention first."""
    order = [*shown_order(), NOT_JUDGED]
    return sorted(kinds(result), key=lambda kind: order.index(kind.name))


def _chance(probability: float) -> str:
    return "over 99%" if probability > 0.995 else f"{probability:.0%}"


def _fact(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {entry}" for name, entry in value.items())
    if isinstance(value, list):
        return ", ".join(map(_fact, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _figure_data(figure: Figure, *, charts: bool) -> dict[str, Any]:
    return {"rows": figure.rows, **({"spec": specification(figure)} if charts else {})}


def _on_map(found: Sequence[Card], points: DataMap | None) -> dict[str, int]:
    """Index of the card by index of the point on the map."""
    if points is None:
        return {}
    place = {row: i for i, row in enumerate(points.rows.tolist())}
    shown = (card for card in enumerate(found) if card[1]["group"] != TO_CHECK)
    return {str(place[card["row"]]): i for i, card in shown if card["row"] in place}


def _by_section(drawn: Sequence[Figure]) -> dict[str, list[Figure]]:
    sections: dict[str, list[Figure]] = {name: [] for name in ("noise", "hardness", "training", "held_out")}
    for figure in drawn:
        sections[figure.section].append(figure)
    return sections


def _groups(found: Sequence[Card], result: AuditResult) -> Iterator[tuple[str, str, int, int]]:
    """Each group's key, title, number of cards, and number of examples with that verdict."""
    totals = {kind.name: kind.examples for kind in kinds(result)}
    for group in GROUPS:
        yield group, label_of(group).title, sum(card["group"] == group for card in found), totals[group]
    first = sum(card["group"] == TO_CHECK for card in found)
    if first:
        yield TO_CHECK, "Check first", first, first


def _shown(found: Sequence[Card], result: AuditResult, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The cards as the template needs them, with their pictures."""
    pictures = [None] * len(found) if result.thumbnails is None else result.thumbnails([card["row"] for card in found])
    for card, picture in zip(found, pictures, strict=True):
        yield {
            **card,
            "title": title(card),
            "label": names[card["label"]],
            "predicted": None if card["predicted"] is None else names[card["predicted"]],
            "suggested": None if card["suggested"] is None else names[card["suggested"]],
            "picture": shown(picture),
        }
