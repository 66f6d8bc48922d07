"""The app in a real browser: filter, sort, lasso, decisions by keys and in bulk, undo, reload, two reviewers, a kill, attacks."""

from __future__ import annotations

import importlib.util
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mohs.audit.decision_log import read_log
from mohs.cli import app

pytestmark = [
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("duckdb", "starlette", "uvicorn")),
        reason="needs the review extra",
    ),
]
TOKEN = "a-token-for-tests"
EXPECTED = ("GL Driver Message", "status of 404")  # software rendering tells of its own speed; a few pictures are gone


@pytest.fixture
def visit(browser: Any, serve: Any) -> Iterator[Callable[..., Any]]:  # pages are closed before their server is
    """Open the app; whatever the browser complains of fails the test at its end, unless the server was killed."""
    said: list[str] = []
    contexts: list[Any] = []

    def open_page(server: Any, address: str = f"/?token={TOKEN}", *, complain: bool = True, **options: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce", **options})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        if complain:
            page.on("console", lambda message: said.append(message.text))
            page.on("pageerror", lambda error: said.append(f"error: {error}"))
            page.on(
                "request", lambda one: None if one.url.startswith((server.address, "data:", "blob:")) else said.append(one.url)
            )
        page.goto(server.address + address)
        page.wait_for_selector("body[data-ready=yes]")
        page.wait_for_selector("article.card[data-row], .nothing:not([hidden])")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert [text for text in said if not any(one in text for one in EXPECTED)] == []


def cards(page: Any) -> list[int]:
    """Rows of the cards, in the order of the grid."""
    found = page.eval_on_selector_all("article.card[data-row]", "all => all.map(one => [+one.dataset.place, +one.dataset.row])")
    return [row for _, row in sorted(found)]


def until(page: Any, check: Callable[[], bool]) -> None:
    ends = time.monotonic() + 60  # on a busy machine
    while not check():
        assert time.monotonic() < ends, "it did not happen"
        page.wait_for_timeout(25)


def shown(page: Any) -> int:
    return int(page.inner_text("#count b").replace(",", ""))


def decided(server: Any) -> int:
    return int(server.get("/api/progress")["decided"])


def test_filter_sort_decide_by_keys_undo_reload_and_apply(visit: Any, serve: Any, run: Path) -> None:
    server = serve(run)
    page = visit(server)
    assert shown(page) == 24  # the flagged ones come first
    assert "token" not in page.url
    page.click("#facets button:has-text('dog')")
    until(page, lambda: shown(page) == 8)
    assert "is.label=dog" in page.url
    page.click(".chip:has-text('mislabeled')")
    until(page, lambda: shown(page) == 80)
    page.select_option("#sort", "confidence")
    expected = [row["row"] for row in server.rows(("is.label", "dog"), ("sort", "-confidence"))]
    until(page, lambda: cards(page)[:10] == expected[:10])
    page.click("#turn")
    until(page, lambda: cards(page)[:3] == [row["row"] for row in server.rows(("is.label", "dog"), ("sort", "confidence"))][:3])
    page.fill("#find", "ex-1")
    until(page, lambda: "find=ex-1" in page.url and shown(page) < 80)
    page.go_back()
    until(page, lambda: shown(page) == 80)
    page.click(".chip:has-text('dog')")
    until(page, lambda: shown(page) == 240)
    page.goto(server.address + "/?is.verdict=mislabeled")  # a link to a view
    page.wait_for_selector("article.card[data-row]")
    page.click("#start")
    page.wait_for_selector("#example[data-loaded=yes]")
    rows = [row["row"] for row in server.rows(("is.verdict", "mislabeled"))]
    for count, key in enumerate("akxs", 1):
        page.keyboard.press(key)
        until(page, lambda count=count: page.get_attribute("#example", "data-row") == str(rows[count]))
    page.keyboard.press("l")
    page.wait_for_selector("#label-input")
    page.keyboard.type("ow")
    page.keyboard.press("Enter")
    until(page, lambda: page.get_attribute("#example", "data-row") == str(rows[5]))
    page.keyboard.press("a")
    until(page, lambda: decided(server) == 5)  # a skip is not a decision
    page.keyboard.press("u")
    until(page, lambda: decided(server) == 4)
    page.keyboard.press("r")
    until(page, lambda: decided(server) == 5)
    page.keyboard.press("u")
    until(page, lambda: decided(server) == 4)
    page.keyboard.press("Escape")
    page.reload()
    page.wait_for_selector("article.card[data-row]")
    until(page, lambda: page.locator(".made").count() == 5)
    until(page, lambda: page.inner_text("#pill-text") == "4 of 24 flagged")  # asked for after the cards
    page.close()  # an open page would go on asking the server for news
    server.close()
    done = CliRunner().invoke(app, ["apply", str(run), str(run / "decisions.log"), "--dry-run", "--json"])
    told = json.loads(done.stdout)
    assert (told["exclude"], told["accept"] + told["keep"] + told["change"]) == (1, 3)


def test_selection_bulk_with_count_and_one_undo(visit: Any, serve: Any, run: Path) -> None:
    server = serve(run)
    page = visit(server)
    page.locator("article.card").nth(0).hover()
    page.locator("article.card .tick").nth(0).click()
    page.locator("article.card").nth(3).click(modifiers=["Shift"])
    until(page, lambda: page.inner_text("#picked b") == "4 selected")
    page.click("#picked [data-act=keep]")
    until(page, lambda: decided(server) == 4)
    page.click("#bulk")
    page.fill("#bulk-least", "0.8")
    expected = len(server.rows(("is.verdict", "mislabeled"), ("decided", "no"), ("in.p_mislabeled", "0.8..")))
    until(page, lambda: page.inner_text("#dialog .count b") == str(expected))
    page.click("#bulk-go")
    until(page, lambda: decided(server) == 4 + expected)
    page.click("#toast button")
    until(page, lambda: decided(server) == 4)
    page.click("[data-page=pairs]")
    page.click(".matrix button >> nth=0")
    page.wait_for_selector("article.card[data-row]")
    assert "is.suggested_label=" in page.url


def test_lasso_on_the_map_fills_the_grid(visit: Any, serve: Any, run: Path) -> None:
    server = serve(run)
    page = visit(server, f"/?page=map&find=ex&token={TOKEN}")
    page.wait_for_selector(".canvas[data-drawn]")
    box = page.locator(".canvas").bounding_box()
    page.click(".canvas button:has-text('Lasso')")
    x, y, w, h = box["x"], box["y"], box["width"], box["height"]
    page.mouse.move(x + w * 0.55, y + h * 0.02)  # around the class on the right: cats, at an angle of 0
    page.mouse.down()
    for to in ((0.99, 0.02), (0.99, 0.98), (0.6, 0.98), (0.6, 0.5), (0.55, 0.02)):
        page.mouse.move(x + w * to[0], y + h * to[1], steps=4)
    page.mouse.up()
    until(page, lambda: "set=" in page.url and 0 < shown(page) < 240)
    page.wait_for_selector("article.card[data-row]")
    rows = {row: server.get("/api/example", [("row", str(row))])["label"] for row in cards(page)[:12]}
    assert set(rows.values()) == {"cat"}
    page.select_option("#color", "label")
    until(page, lambda: page.locator(".legend span").count() == 3)
    page.click(".chip:has-text('selection')")
    until(page, lambda: shown(page) == 240)


def test_two_reviewers_at_once_and_forty_decisions_a_minute(visit: Any, serve: Any, run: Path) -> None:
    server = serve(run)
    ada, bo = visit(server, f"/?is.verdict=mislabeled&token={TOKEN}"), visit(server)
    bo.click("#who")
    bo.fill("#dialog input", "bo")
    bo.keyboard.press("Enter")
    rows = [row["row"] for row in server.rows(("is.verdict", "mislabeled"))]
    ada.click("#start")
    ada.wait_for_selector("#example[data-loaded=yes]")
    began = time.monotonic()
    for count in range(1, 13):
        ada.keyboard.press("ak"[count % 2])
        until(ada, lambda count=count: ada.get_attribute("#example", "data-row") == str(rows[count]))
    assert 12 / (time.monotonic() - began) >= 40 / 60
    until(bo, lambda: bo.locator(".made").count() == 12)  # without a reload
    bo.click(f"article.card[data-row='{rows[0]}']")
    bo.wait_for_selector("#example[data-loaded=yes]")
    until(bo, lambda: "ada" in bo.inner_text(".history"))
    bo.keyboard.press("x")
    until(bo, lambda: server.get("/api/progress")["disputed"] == 1)
    bo.keyboard.press("Escape")
    bo.click("[data-page=progress]")
    bo.wait_for_selector("#disputes button")
    assert {one["name"] for one in server.get("/api/progress")["reviewers"]} == {"ada", "bo"}


def test_a_kill_in_the_middle_loses_no_confirmed_decision(visit: Any, serve: Any, run: Path) -> None:
    server = serve(run, process=True)
    page = visit(server, f"/?sort=id&token={TOKEN}", complain=False)
    page.focus("article.card[data-place='0']")
    for _ in range(20):
        page.keyboard.press("k")
    until(page, lambda: page.locator(".made").count() > 5)
    confirmed = page.locator(".made").count()
    server.kill()
    page.keyboard.press("k")
    page.wait_for_selector("#toast.wrong:not([hidden])")
    assert confirmed > 5
    _, state = read_log(run / "decisions.log")
    assert len(list(state.decided())) >= confirmed


def test_no_name_from_the_data_runs(visit: Any, serve: Any, hostile_run: Path) -> None:
    server = serve(hostile_run)
    page = visit(server)
    page.click("#start")
    page.wait_for_selector("#example[data-loaded=yes]")
    page.click(".values summary")
    page.keyboard.press("l")
    page.wait_for_selector("#choices li")
    page.keyboard.press("Escape")
    page.keyboard.press("a")
    page.wait_for_timeout(200)
    page.keyboard.press("Escape")
    for name in ("map", "pairs", "progress"):
        page.click(f"[data-page={name}]")
        page.wait_for_selector(f"#{name} :is(canvas, table, .tile)")
    assert page.evaluate("window.hit === undefined")
    assert "⟨U+202E⟩" in server.get("/api/about")["classes"][2] or "\u202e" not in page.inner_text("body")


def test_a_page_without_the_token_asks_for_it(browser: Any, shared: Any) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844})
    page = context.new_page()
    page.goto(shared.address)
    page.fill("#token", "wrong")
    page.keyboard.press("Enter")
    page.wait_for_selector("#dialog .error:not(:empty)")
    page.fill("#token", TOKEN)
    page.keyboard.press("Enter")
    page.wait_for_selector("article.card[data-row]")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.click("#filters")
    assert page.is_visible("#facets")
    context.close()
