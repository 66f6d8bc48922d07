"""The page as text: what it says, what it weighs, and that nothing of the data can run; the browser's tests drive it."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import mohs.report.page as pages
from mohs.audit.gallery_rows import AT_LEAST
from mohs.audit.result import AuditResult
from mohs.hardness.noise_rate import estimate_noise
from mohs.hardness.table import VERDICTS, add_columns
from mohs.report.gallery import cards
from mohs.report.page import page, write_report
from mohs.report.summary import counts_line, kinds, next_steps, noise_sentence, scale_end, sentences, training_sentence
from mohs.report.verdict_labels import css_name, label_of

needs_charts = pytest.mark.skipif(importlib.util.find_spec("vl_convert") is None, reason="needs the report extra")


class Elements(HTMLParser):
    """Every element's tag and attributes, and the text of scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._in_script = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script" and "type" not in dict(attrs):
            self._in_script = True
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag == "script":
            self._in_script = False

    def handle_data(self, data: str) -> None:
        if self._in_script:
            self.scripts[-1] += data


def test_the_summary_is_in_plain_words(digits: AuditResult) -> None:
    text = " ".join(sentences(digits))
    counts = {kind.name: kind.examples for kind in kinds(digits)}
    assert f"{len(digits.table):,} examples of 10 classes" in text
    assert f"{counts['mislabeled']:,} (" in text
    assert "2 left out, unreadable or without a label" in text
    assert sum(counts.values()) == len(digits.table)
    assert "labels are wrong" in noise_sentence(digits)
    assert training_sentence(digits).startswith("mlp(64) was trained with the loss gce:q=0.7.")
    assert [step.command for step in next_steps(digits) if step.command] == [
        "mohs review RUN",
        "mohs apply RUN decisions.csv --to labels.csv",
        "mohs apply RUN --to labels.csv --retrain",
    ]
    named = replace(digits, facts={"run": "runs/a b"})
    assert next_steps(named)[2].command.startswith("mohs apply 'runs/a b'")
    assert scale_end(digits) in (0.2, 0.3)


def test_classes_with_several_spellings_come_first(digits: AuditResult) -> None:
    named = replace(digits, classes=["Dog", "cat", "dog ", *map(str, range(7))])
    assert next_steps(named)[0].text.endswith("Judged as different classes: 'Dog' and 'dog '.")
    assert next_steps(named)[1:] == next_steps(digits)


def test_the_summary_of_clean_data_and_of_little(synthetic: Callable[..., Any]) -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(300) % 3
    estimate = estimate_noise(labels, np.eye(3)[labels] * 0.9 + rng.dirichlet(np.ones(3), 300) * 0.1)
    table = synthetic(300, ["a", "b", "c"])
    clean = AuditResult(
        table.filter(np.array(table.column("verdict").to_pylist()) == "easy"), "n", "h", ["a", "b", "c"], estimate
    )
    clean = replace(clean, table=add_columns(clean.table, {"p_mislabeled": np.zeros(len(clean.table))}))
    assert noise_sentence(clean).startswith("No sign of wrong labels")
    assert next_steps(clean)[0].text.startswith("No label looks wrong")
    assert sentences(clean)[1] == "No label looks wrong."
    doubted = replace(clean, table=add_columns(clean.table, {"p_mislabeled": np.full(len(clean.table), 0.3)}))
    assert sentences(doubted)[1].endswith("but about 6 of the 20 most doubtful ones are wrong.")
    unsure = replace(clean, table=add_columns(clean.table, {"verdict": ["cannot tell"] * 7 + ["easy"] * (len(clean.table) - 7)}))
    assert sentences(unsure)[1] == f"No label looks wrong, but the judge cannot tell for 7 of {len(clean.table)}."
    shown = page(clean)
    assert shown.count("<li data-card=") == shown.count('data-group="hard"><article') == AT_LEAST  # the hardest of the easy
    unjudged = page(replace(clean, table=add_columns(clean.table, {"verdict": [None] * len(clean.table)})))
    assert "No example needs a review." in unjudged
    assert "<li data-card=" not in unjudged
    assert counts_line(clean).endswith("0 cannot tell")
    gaps = [None, None, *clean.table.column("verdict").to_pylist()[2:]]
    labels = ["single", *clean.table.column("label").to_pylist()[1:]]
    partly = replace(clean, classes=["a", "b", "c", "single"], table=add_columns(clean.table, {"verdict": gaps, "label": labels}))
    assert counts_line(partly).endswith("0 cannot tell, 2 not judged (1: the only example of its class, 1: no finite scores)")
    assert "2 not judged: " in page(partly)
    assert sum(partly.shares[name] for name in ("easy", "hard", "ambiguous", "mislabeled", "cannot_tell", "not_judged")) == 1
    assert training_sentence(clean) == "This audit has no record of a training loss."
    assert noise_sentence(replace(clean, estimate=None)) == "The share of wrong labels was not estimated for this run."


@needs_charts
def test_only_its_own_scripts_may_run(digits: AuditResult, hostile: AuditResult) -> None:
    for result in (digits, hostile):
        text = page(result)
        found = Elements(text)
        policy = next(a["content"] for tag, a in found.tags if tag == "meta" and a.get("http-equiv"))
        assert policy is not None
        assert policy.startswith("default-src 'none'; script-src 'sha256-")
        hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in found.scripts]
        assert len(hashes) == 2
        assert all(f"'sha256-{value}'" in policy for value in hashes)
        assert not [a for _, a in found.tags for name in a if name.startswith("on")]
        assert all((a.get("src") or "data:").startswith("data:image/webp") for _, a in found.tags if "src" in a)
        assert not [tag for tag, _ in found.tags if tag in ("iframe", "object", "embed", "base", "link")]
        assert not re.search("[\u202a-\u202e\u2066-\u2069\x00-\x08\x0e-\x1f]", text)


def test_hostile_names_are_shown_not_executed(hostile: AuditResult) -> None:
    text = page(hostile)
    assert "<script>window.hit" not in text
    assert "<img src=x" not in text
    assert "⟨U+202E⟩" in text
    assert "⟨U+DC80⟩" in text
    assert "{{ 7 * 7 }}" in text
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert data is not None
    assert json.loads(data[1])["classes"] == list(hostile.classes)


def test_landmarks_headings_and_alternative_texts(digits: AuditResult) -> None:
    found = Elements(page(digits))
    tags = [tag for tag, _ in found.tags]
    assert tags.count("main") == tags.count("h1") == tags.count("header") == 1
    assert all(a.get("alt") for tag, a in found.tags if tag == "img")
    ids = [a["id"] for _, a in found.tags if a.get("id")]
    assert len(ids) == len(set(ids))
    wanted = [a[name] for _, a in found.tags for name in ("aria-labelledby", "aria-describedby") if name in a]
    wanted += [(a["href"] or "")[1:] for tag, a in found.tags if tag == "a"]
    assert set(wanted) <= set(ids)
    assert [a["lang"] for tag, a in found.tags if tag == "html"] == ["en"]


def test_without_charts_the_numbers_are_shown_as_tables(digits: AuditResult, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "chart_script", lambda: "")
    text = page(digits)
    assert "Charts need the report extra" in text
    assert "<details open>" in text
    assert 'class="drawing"' not in text
    assert len(Elements(text).scripts) == 1
    assert len(text) < 1_000_000


@needs_charts
def test_50_000_examples_stay_under_5_mb(synthetic: Callable[..., Any], tmp_path: Path) -> None:
    classes = [f"class {i}" for i in range(10)]

    def thumbnails(rows: Any) -> list[Any]:
        noise = (np.random.default_rng(row).integers(0, 255, (8, 8, 3), dtype=np.uint8) for row in rows)
        return [Image.fromarray(pixels).resize((200, 160), Image.Resampling.BICUBIC) for pixels in noise]

    result = AuditResult(synthetic(50_000, classes), "fifty thousand", "h", classes, chosen="gce:q=0.7", thumbnails=thumbnails)
    out = write_report(result, tmp_path / "big.html")
    assert out.stat().st_size < 5_000_000
    assert out.read_text().count("<img loading") == 600


def test_paths_that_can_be_written(digits: AuditResult, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"the report is an HTML page; give the file the ending .html"):
        write_report(digits, tmp_path / "report.pdf")
    with pytest.raises(ValueError, match="does not exist; create it first"):
        write_report(digits, tmp_path / "no" / "report.html")


def test_colors_of_verdicts_are_those_of_the_style(digits: AuditResult) -> None:
    style = page(digits)
    assert all(f"--{css_name(name)}: {label_of(name).color};" in style for name in VERDICTS)


def test_an_empty_class_name(synthetic: Callable[..., Any]) -> None:
    assert "(empty)" in page(AuditResult(synthetic(60, ["", "b"]), "n", "h", ["", "b"]))


def test_texts_are_escaped_on_their_cards(texts: AuditResult) -> None:
    text = page(texts)
    assert "<script>window.hit" not in text
    assert "<bdi>&lt;/bdi&gt;&lt;/p&gt;&lt;script&gt;window.hit = 1&lt;/script&gt;⟨U+202E⟩evil␇␊next line</bdi>" in text
    assert text.count('class="excerpt"') == sum(card["excerpt"] is not None for card in cards(texts.table, texts.classes))
    assert "The bank shut my account" in text


FIFTH = """
import sys
for name in [name for name in sys.modules if name.partition(".")[0] == "mohs"]:
    del sys.modules[name]
sys.path.insert(0, here)
import mohs.hardness.verdict as rule
known = rule.VERDICTS
rule.VERDICTS = tuple(dict.fromkeys((*known, "cannot tell")))
from conftest import synthetic_table
from mohs.audit.result import AuditResult
from mohs.hardness.table import add_columns
from mohs.report.page import write_report
from mohs.report.summary import kinds, next_steps, sentences
rule.VERDICTS = known
table = synthetic_table(400, ["a", "b"])
verdicts = ["cannot tell" if name == "hard" or i % 9 == 0 else name for i, name in enumerate(table.column("verdict").to_pylist())]
result = AuditResult(add_columns(table, {"verdict": verdicts}), "weak", "h", ["a", "b"])
count = verdicts.count("cannot tell")
assert {kind.name: kind.examples for kind in kinds(result)}["cannot tell"] == count
assert f"too weak here to tell whether the labels of {count} (" in " ".join(sentences(result))
assert any("this audit cannot" in step.text for step in next_steps(result))
write_report(result, out)
"""


def test_a_fifth_verdict_appears_everywhere(run_forked: Callable[..., int], tmp_path: Path) -> None:
    """Counts, colors, filters, map and gallery follow VERDICTS."""
    out = tmp_path / "weak.html"
    assert run_forked(FIFTH, here=str(Path(__file__).parent), out=out) == 0
    text = out.read_text()
    assert "--cannot-tell: #CC79A7;" in text
    assert '<i class="dot of-cannot-tell"></i>cannot tell</label>' in text
    assert 'data-group="cannot tell"' in text
    assert '<th scope="row">cannot tell</th>' in text
    assert "too weak here to judge the label" in text
