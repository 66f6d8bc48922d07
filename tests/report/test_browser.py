"""The report in a real browser: the gallery, its keys, the download, the map, light and dark, and names that mean harm."""

from __future__ import annotations

import csv
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mohs.audit.decisions import apply_decisions, read_decisions
from mohs.audit.result import AuditResult
from mohs.report.page import write_report

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("vl_convert") is None, reason="needs the report extra"),
]
DRAWN = "() => document.getElementById('map-box')?.dataset.drawn === 'yes'"


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Any]]:
    """Open a page; whatever the browser complains of fails the test at its end."""
    said: list[str] = []
    contexts: list[Any] = []

    def open_page(path: Path, **options: Any) -> Any:
        context = browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce", **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(15_000)
        page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: said.append(f"error: {error}"))
        page.on("request", lambda request: said.append(f"asked for {request.url}") if request.url.startswith("http") else None)
        page.goto(path.as_uri())
        page.wait_for_function(DRAWN)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert said == []


@pytest.fixture(scope="module")
def report(digits: AuditResult, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(digits, tmp_path_factory.mktemp("page") / "report.html")


def shown(page: Any) -> list[Any]:
    found: list[Any] = page.query_selector_all("#cards > li:not([hidden])")
    return found


def focused(page: Any) -> int:
    place: int = page.evaluate("[...document.querySelectorAll('#cards > li')].indexOf(document.activeElement.closest('li'))")
    return place


def saved(page: Any, button: str, path: Path) -> Path:
    with page.expect_download() as waiting:
        page.click(button)
    waiting.value.save_as(path)
    return path


def test_keyboard_decisions_can_be_downloaded_and_applied(visit: Any, report: Path, digits: AuditResult, tmp_path: Path) -> None:
    page = visit(report)
    page.focus("#cards > li:first-child article")
    for key in "124":
        page.keyboard.press(key)
    assert focused(page) == 3
    page.keyboard.press("3")
    assert page.is_visible("dialog")
    page.keyboard.type("7")
    page.keyboard.press("Enter")
    assert not page.is_visible("dialog")
    assert focused(page) == 4
    page.keyboard.press("k")
    page.keyboard.press("k")
    assert focused(page) == 2
    page.keyboard.press("j")
    page.keyboard.press("1")
    page.keyboard.press("u")
    assert "Changed to 7" in shown(page)[3].inner_text()
    assert page.inner_text("#decided-count") == "4 decided"
    rows = read_decisions(saved(page, "#download", tmp_path / "decisions.csv"))
    assert [row["decision"] for row in rows] == ["accept", "keep", "exclude", "change"]
    assert rows[3]["new_label"] == "7"
    labels, summary = apply_decisions(digits.table, rows, digits.data_hash)
    assert (summary.changed, summary.decided["exclude"]) == (2, 1)
    assert len(labels) == len(digits.table)


def test_keys_work_only_in_the_gallery(visit: Any, report: Path) -> None:
    page = visit(report)
    page.keyboard.press("1")
    page.focus("#gallery-class")
    page.keyboard.press("2")
    page.focus("#bulk-chance")
    page.keyboard.press("4")
    page.focus("#cards > li:first-child article")
    page.keyboard.press("Control+1")
    assert page.inner_text("#decided-count") == "No decisions yet"


def test_decisions_outlive_the_page_but_not_the_data(visit: Any, report: Path, hostile: AuditResult) -> None:
    page = visit(report)
    page.click("#cards > li:first-child [data-act=keep]")
    page.reload()
    page.wait_for_function(DRAWN)
    assert page.inner_text("#decided-count") == "1 decided"
    assert "Label kept" in shown(page)[0].inner_text()
    page.click("#cards > li:first-child [data-act=keep]")  # the same again takes it back
    assert page.inner_text("#decided-count") == "No decisions yet"
    page.click("#undo")
    assert page.inner_text("#decided-count") == "1 decided"
    page.evaluate(
        'Object.keys(localStorage).forEach((key) => localStorage.setItem(key, \'[["0", "<b>", "accept", 5], 7, null]\'))'
    )
    page.reload()
    page.wait_for_function(DRAWN)
    assert page.inner_text("#decided-count") == "No decisions yet"
    other = write_report(hostile, report.parent / "other.html")
    page.goto(other.as_uri())
    page.wait_for_function(DRAWN)
    assert page.inner_text("#decided-count") == "No decisions yet"


def test_filters_show_more_and_accept_all(visit: Any, report: Path, digits: AuditResult, tmp_path: Path) -> None:
    page = visit(report)
    assert len(shown(page)) == 60
    page.click("#gallery-more")
    page.wait_for_function("() => document.querySelectorAll('#cards > li:not([hidden])').length > 60")
    assert len(shown(page)) == 120
    assert focused(page) == 60
    page.select_option("#gallery-class", label="3")
    cards = shown(page)
    assert cards
    assert all("3" in card.query_selector(".labels").text_content() for card in cards)  # also of cards that are not drawn yet
    page.click("[data-group=ambiguous][aria-pressed]")
    assert all(card.get_attribute("data-group") == "ambiguous" for card in shown(page))
    assert page.is_disabled("#cards > li:not([hidden]) [data-act=accept]")
    page.fill("#bulk-chance", "90")
    wanted = sum(row["p_mislabeled"] >= 0.8995 and row["verdict"] == "mislabeled" for row in digits.table.to_pylist())
    assert page.inner_text("#bulk-accept") == f"Accept all {wanted}"
    page.click("#bulk-accept")
    rows = read_decisions(saved(page, "#download", tmp_path / "d.csv"))
    assert len(rows) == wanted
    assert apply_decisions(digits.table, rows, digits.data_hash)[1].changed == wanted
    page.click("[data-group=mislabeled][aria-pressed]")
    page.select_option("#gallery-class", "")
    page.check("#gallery-open")
    assert not any(card.query_selector("article.done") for card in shown(page))
    page.click("#undo")
    assert page.inner_text("#decided-count") == "No decisions yet"
    assert page.is_disabled("#download")


def test_one_card_at_a_time_is_in_the_tab_order(visit: Any, report: Path) -> None:
    page = visit(report)
    assert page.evaluate("document.querySelectorAll('#cards article[tabindex=\"0\"]').length") == 1
    page.focus("#cards > li:first-child article")
    page.keyboard.press("j")
    assert page.evaluate("document.querySelectorAll('#cards article[tabindex=\"0\"]').length") == 1
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.dataset.act") == "accept"
    page.keyboard.press("Enter")
    assert "Accepted" in page.inner_text("#said")
    assert page.get_attribute("#cards > li:nth-child(2) [data-act=accept]", "aria-pressed") == "true"


def test_the_map_works_with_keys_and_pointer_and_opens_cards(visit: Any, report: Path) -> None:
    page = visit(report)
    page.focus("#map-front")
    page.keyboard.press("Home")
    first = page.inner_text("#map-said")
    assert "labeled" in first
    assert "mean confidence in the label 0.00" in first
    for key in ("ArrowUp", "ArrowUp", "ArrowRight"):
        page.keyboard.press(key)
    assert page.inner_text("#map-said") != first
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    assert focused(page) >= 0
    number = first.split(":")[0].removeprefix("example ")
    assert page.evaluate("document.activeElement.querySelector('.title').textContent") == number
    page.focus("#map-front")
    page.keyboard.press("End")
    x, y = page.evaluate(
        "(() => { const box = document.getElementById('map-front').getBoundingClientRect(); return [box.x, box.y]; })()"
    )
    page.uncheck("[data-verdict='0']")
    page.mouse.move(x + 300, y + 200)
    assert "labeled" in page.inner_text("#map-reading")


def test_charts_are_drawn_and_their_numbers_can_be_downloaded(visit: Any, report: Path, tmp_path: Path) -> None:
    page = visit(report)
    figures = page.query_selector_all("[data-figure]")
    assert len(figures) == 12
    for figure in figures:
        figure.scroll_into_view_if_needed()
        page.wait_for_function("(figure) => figure.dataset.drawn === 'yes'", arg=figure)
        assert figure.query_selector("svg") is not None
        assert figure.query_selector("svg").bounding_box()["width"] > 250
    with saved(page, "[data-csv=pairs]", tmp_path / "pairs.csv").open(encoding="utf-8-sig", newline="") as file:
        assert next(csv.DictReader(file)).keys() == {"given", "suggested", "examples"}
    page.click("#figure-grades summary")
    assert page.inner_text("#figure-grades thead").strip() == "grade\tverdict\texamples"


def test_light_dark_and_manual_color_scheme(visit: Any, report: Path) -> None:
    def paper(page: Any) -> str:
        color: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return color

    light, dark = visit(report, color_scheme="light"), visit(report, color_scheme="dark")
    assert paper(light) == "rgb(251, 250, 247)"
    assert paper(dark) == "rgb(20, 23, 27)"
    light.click("#theme")  # from the system's to light, then dark
    light.click("#theme")
    assert paper(light) == paper(dark)
    light.reload()
    light.wait_for_function(DRAWN)
    assert paper(light) == paper(dark)
    assert light.inner_text("#theme") == "Colors: dark"


def test_hostile_names_are_harmless(visit: Any, hostile: AuditResult, tmp_path: Path) -> None:
    page = visit(write_report(hostile, tmp_path / "hostile.html"))
    for figure in page.query_selector_all("[data-figure]"):
        figure.scroll_into_view_if_needed()
        page.wait_for_function("(figure) => figure.dataset.drawn === 'yes'", arg=figure)
        figure.query_selector("summary").click()
    page.focus("#map-front")
    for key in ("Home", "ArrowUp", "ArrowRight", "End"):
        page.keyboard.press(key)
    page.fill("#bulk-chance", "50")
    page.click("#bulk-accept")
    page.focus("#cards > li:first-child article")
    page.keyboard.press("3")
    page.keyboard.press("Enter")
    path = saved(page, "#download", tmp_path / "decisions.csv")
    assert page.evaluate("window.hit") is None
    with path.open(encoding="utf-8-sig", newline="") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@"))]
    rows = read_decisions(path)
    labels, summary = apply_decisions(hostile.table, rows, hostile.data_hash)
    assert summary.changed == len(rows) > 10
    assert set(labels.column("label").to_pylist()) <= set(hostile.classes)


def test_texts_are_shown_on_cards_and_on_the_map(visit: Any, texts: AuditResult, tmp_path: Path) -> None:
    page = visit(write_report(texts, tmp_path / "texts.html"))
    excerpts = page.query_selector_all("#cards > li:not([hidden]) .excerpt")
    assert len(excerpts) > 10
    assert excerpts[0].inner_text().startswith("a long word a long word")
    assert all(part.bounding_box()["width"] > 180 for part in excerpts)
    assert page.evaluate("window.hit") is None
    page.focus("#map-front")
    page.keyboard.press("End")
    assert any(line[:12] in page.inner_text("#map-said") for line in ("The bank shut", "Free entry! ", "See you at s"))


def test_fifty_thousand_examples_and_a_narrow_window(visit: Any, synthetic: Callable[..., Any], tmp_path: Path) -> None:
    classes = [f"class {i}" for i in range(10)]
    page = visit(write_report(AuditResult(synthetic(50_000, classes), "many", "h", classes), tmp_path / "many.html"))
    page.set_viewport_size({"width": 360, "height": 700})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.inner_text("#gallery-count").startswith("Showing 60 of ")
    assert "these are the most certain of" in page.inner_text("#gallery-count")


def test_without_scripts_all_text_is_readable(browser: Any, report: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(report.as_uri())
    assert "JavaScript is off" in page.inner_text("body")
    assert len(shown(page)) > 100
    context.close()
