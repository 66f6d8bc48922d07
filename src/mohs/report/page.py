"""The audit's report: one HTML file that needs no network and no server, and in which nothing of the data can run.

    write_report(findings, out)      write_report(load_audit("runs/a1b2"), "report.html")

Scripts are named by their hashes in the page's content-security policy; names come in through Jinja's escaping and
`visible`, data through `page_json`. Charts need Altair and vl-convert (the `report` extra); without them their numbers are
given as tables and files to download.
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
from mohs.audit.result import AuditResult
from mohs.audit.thumbnails import data_address
from mohs.hardness.verdict import VERDICTS
from mohs.report.data_map import DataMap, data_map
from mohs.report.drawings import VERDICT_COLORS, specification
from mohs.report.figure import Figure
from mohs.report.figures import figures
from mohs.report.gallery import Card, cards, flagged, names_of, title
from mohs.report.summary import kinds, next_steps, noise_sentence, scale_end, sentences, training_sentence

TEMPLATES = Path(__file__).parent / "templates"
SCRIPTS = ("page.js", "charts.js", "data_map.js", "decisions.js", "gallery.js")
GROUP_TITLES = {"mislabeled": "Probably mislabeled", "hard": "Hardest", "ambiguous": "Most ambiguous"}
LEFT_OUT_SHOWN = 500
ENLARGED = 64  # pixels a tiny picture's longer side has on the page


def write_report(findings: AuditResult, out: str | Path) -> Path:
    """Write the report; whole or not at all. `out` ends in .html, and its folder is there."""
    out = Path(out)
    check_report_path(out)
    with written_whole(out, sync=False) as part:
        part.write_text(page(findings), encoding="utf-8", newline="\n")
    return out


def check_report_path(out: Path) -> None:
    """Raise, before any work, unless a report can be written there."""
    if out.suffix not in (".html", ".htm"):
        raise ValueError(f"{out}: the report is an HTML page; give the file the ending .html")
    if not out.parent.is_dir():
        raise ValueError(f"{out}: the folder {out.parent} does not exist; make it first")


def page(findings: AuditResult) -> str:
    """The whole page as text."""
    drawn = figures(findings)
    names = names_of(findings.table, findings.classes)
    points = data_map(findings.table, names)
    found = cards(findings.table, names)
    bundle = chart_script()
    own = "\n".join((TEMPLATES / name).read_text(encoding="utf-8") for name in SCRIPTS)
    scripts = [script for script in (bundle, own) if script]
    data = {
        "hash": findings.data_hash,
        "classes": [str(name) for name in names],
        "shown": [shorten(name) for name in names],
        "verdicts": VERDICTS,
        "cards": [[card["id"], card["label"], card["suggested"]] for card in found],
        "flagged": flagged(findings.table, names),
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
            **_words(findings),
            charts=bool(bundle),
            sections=_by_section(drawn),
            points=points,
            cards=list(_shown(found, findings, [shorten(name) for name in names])),
            groups=list(_groups(found, findings)),
            style=Markup((TEMPLATES / "page.css").read_text(encoding="utf-8")),
            policy=content_policy(scripts),
            scripts=[Markup(script) for script in scripts],
            data=Markup(page_json(data)),
        )
    )


def content_policy(scripts: Sequence[str]) -> str:
    """The policy under which these scripts and nothing else run."""
    hashes = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{value}'" for value in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    )


@lru_cache
def chart_script() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script; empty where the `report` extra is not installed."""
    if find_spec("altair") is None or find_spec("vl_convert") is None:
        return ""
    import vl_convert

    script: str = vl_convert.javascript_bundle()  # type: ignore[call-arg]
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value,
    )
    environment.filters |= {
        "short": shorten,
        "percent": lambda share: f"{share:.1%}",
        "number": lambda n: f"{n:,}",
        "chance": _chance,
    }
    return environment


def _words(findings: AuditResult) -> dict[str, Any]:
    return {
        "name": findings.name,
        "data_hash": findings.data_hash,
        "total": len(findings.table),
        "kinds": kinds(findings),
        "colors": VERDICT_COLORS,
        "sentences": sentences(findings),
        "estimate": findings.estimate,
        "top": scale_end(findings),
        "noise": noise_sentence(findings),
        "training": training_sentence(findings),
        "steps": next_steps(findings),
        "classes": [shorten(name) for name in findings.classes],
        "left_out": list(findings.left_out)[:LEFT_OUT_SHOWN],
        "left_out_count": len(findings.left_out),
        "facts": [(name.replace("_", " "), _fact(value)) for name, value in findings.facts.items()],
    }


def _chance(probability: float) -> str:
    return "over 99%" if probability > 0.995 else f"{probability:.0%}"


def _fact(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {entry}" for name, entry in value.items())
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _figure_data(figure: Figure, *, charts: bool) -> dict[str, Any]:
    return {"rows": figure.rows, **({"spec": specification(figure)} if charts else {})}


def _on_map(found: Sequence[Card], points: DataMap | None) -> dict[str, int]:
    """The card's place by the point's place in the map."""
    if points is None:
        return {}
    place = {row: i for i, row in enumerate(points.rows.tolist())}
    return {str(place[card["row"]]): i for i, card in enumerate(found) if card["row"] in place}


def _by_section(drawn: Sequence[Figure]) -> dict[str, list[Figure]]:
    sections: dict[str, list[Figure]] = {name: [] for name in ("noise", "hardness", "training", "held_out")}
    for figure in drawn:
        sections[figure.section].append(figure)
    return sections


def _groups(found: Sequence[Card], findings: AuditResult) -> Iterator[tuple[str, str, int, int]]:
    """Each group's key, title, how many cards it has, and how many examples there are in all."""
    totals = {kind.name: kind.examples for kind in kinds(findings)}
    for group in GROUPS:
        yield group, GROUP_TITLES[group], sum(card["group"] == group for card in found), totals[group]


def _shown(found: Sequence[Card], findings: AuditResult, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """What the template needs of each card, with its picture."""
    pictures = [None] * len(found) if findings.thumbnails is None else findings.thumbnails([card["row"] for card in found])
    for card, picture in zip(found, pictures, strict=True):
        size = None
        if picture is not None:
            longer = max(picture.size)
            factor = ENLARGED // longer if longer < ENLARGED else ENLARGED / longer
            size = tuple(max(1, round(side * factor)) for side in picture.size)
        yield {
            **card,
            "title": title(card),
            "label": names[card["label"]],
            "predicted": None if card["predicted"] is None else names[card["predicted"]],
            "suggested": None if card["suggested"] is None else names[card["suggested"]],
            "src": None if picture is None else data_address(picture),
            "tiny": picture is not None and max(picture.size) < ENLARGED,
            "size": size,
        }
