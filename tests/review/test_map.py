"""The map in a real browser, under a strict content-security policy: pan, zoom, lasso, pick, keys, touch, themes, fallback."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import mohs

SOFTWARE = ["--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
WEB = Path(mohs.__file__).parent / "review" / "web"
POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; base-uri 'none'; form-action 'none'"
SIDE, COUNT = 500, 2000
PALETTE = ["rgb(200, 30, 30)", "light-dark(rgb(20, 60, 200), rgb(90, 200, 250))"]
PAGE = '<!doctype html><html><head><link rel="stylesheet" href="page.css"></head><body><main id="map"></main></body></html>'
STYLE = f"""
:root {{ color-scheme: light dark; background: light-dark(rgb(250, 250, 250), rgb(20, 20, 30)); color: CanvasText; }}
body {{ margin: 0 }} #map {{ width: {SIDE}px; height: {SIDE}px }}
"""
CREATE = """async ([x, y, color, palette, renderer]) => {
  const { createMap } = await import("/map.js");
  window.calls = [];
  window.map = createMap(document.getElementById("map"), {
    x: Float32Array.from(x), y: Float32Array.from(y), color: Uint8Array.from(color), palette, renderer,
    onSelect: (indices) => window.calls.push(["select", [...indices]]),
    onHover: (index) => window.calls.push(["hover", index]),
    onPick: (index) => window.calls.push(["pick", index]),
  });
}"""
SERVED = {"": PAGE, "page.css": STYLE, **{path.name: path.read_text(encoding="utf-8") for path in WEB.glob("*.js")}}
KINDS = {"": "text/html", ".css": "text/css", ".js": "text/javascript"}
DRAWN = "() => document.getElementById('map').dataset.drawn"


def points() -> tuple[Any, Any, Any]:
    """Coordinates in the square from -1 to 1, whose corners are points, and colors."""
    random = np.random.default_rng(0)
    x, y = random.uniform(-1, 1, (2, COUNT)).astype(np.float32)
    x[:4], y[:4] = [-1, 1, 1, -1], [-1, -1, 1, 1]
    return x, y, random.integers(2, size=COUNT)


def inside(x: Any, y: Any, polygon: Any) -> Any:
    """Even-odd rule, edge by edge."""
    odd = np.zeros(len(x), bool)
    for (ax, ay), (bx, by) in zip(polygon, np.roll(polygon, -1, 0), strict=True):
        if ay != by:
            odd ^= ((ay > y) != (by > y)) & (x < ax + (y - ay) * (bx - ax) / (by - ay))
    return np.flatnonzero(odd)


@pytest.fixture
def open_map(launch: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """A page with the map of `points()`; whatever the browser complains of fails the test at its end."""
    said: list[str] = []
    contexts: list[Any] = []

    def serve(route: Any) -> None:
        name = route.request.url.rsplit("/", 1)[1]
        if name not in SERVED:
            route.abort()
            return
        headers = {"Content-Security-Policy": POLICY}
        route.fulfill(body=SERVED[name], content_type=KINDS[Path(name).suffix], headers=headers)

    def create(renderer: str | None, *, browser: str = "software", data: Any = None, **options: Any) -> Any:
        flags = SOFTWARE if browser == "software" else ["--disable-3d-apis"]
        context = launch(*flags).new_context(viewport={"width": SIDE, "height": SIDE}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(15_000)
        page.on("console", lambda message: said.append(message.text) if "GPU stall" not in message.text else None)
        page.on("pageerror", lambda error: said.append(str(error)))
        page.route("**/*", serve)
        page.goto("http://map.test/")
        page.evaluate(CREATE, [*(np.asarray(part).tolist() for part in (data or points())), PALETTE, renderer])
        page.wait_for_function(DRAWN)
        return page

    yield create
    for context in contexts:
        context.close()
    assert said == []


def located(page: Any, *indices: int) -> Any:
    return np.array(page.evaluate("(indices) => indices.map((i) => map.locate(i))", list(indices)))


def calls(page: Any, kind: str) -> list[Any]:
    return [value for name, value in page.evaluate("calls.splice(0)") if name == kind]


def drag(page: Any, path: Any) -> None:
    page.mouse.move(*path[0])
    page.mouse.down()
    for place in path[1:]:
        page.mouse.move(*place)
    page.mouse.up()


def pixels(page: Any) -> Any:
    return np.asarray(Image.open(io.BytesIO(page.screenshot())).convert("RGB")).astype(int)


@pytest.mark.parametrize("renderer", ["webgl2", "canvas"])
def test_pan_zoom_lasso_and_pick(open_map: Any, renderer: str) -> None:
    page, (_, _, color) = open_map(renderer), points()
    assert page.get_attribute("#map", "data-renderer") == renderer

    corners = located(page, 0, 1, 2, 3)
    assert np.ptp(corners, 0) == pytest.approx([SIDE - 48] * 2)  # all points fit, with a margin of 24 pixels
    assert corners[0] == pytest.approx([24, SIDE - 24])  # y points up

    drag(page, [(250, 250), (280, 260), (310, 230)])
    assert located(page, 0, 1, 2, 3) - corners == pytest.approx(np.tile([60, -20], (4, 1)))

    fixed = located(page, 7)[0]
    page.mouse.move(*fixed)
    page.mouse.wheel(0, -200)
    page.wait_for_function("(wide) => map.locate(1)[0] - map.locate(0)[0] > wide", arg=SIDE)
    assert located(page, 7)[0] == pytest.approx(fixed, abs=1)  # what is under the pointer stays there

    page.focus("#map canvas >> nth=1")
    page.keyboard.press("0")
    assert located(page, 0, 1, 2, 3) == pytest.approx(corners)

    calls(page, "")
    polygon = np.array([[100, 100], [400, 120], [300, 420], [250, 200], [150, 400]])
    page.keyboard.down("Shift")
    drag(page, polygon.tolist())
    page.keyboard.up("Shift")
    screen = located(page, *range(COUNT))
    expected = inside(screen[:, 0], screen[:, 1], polygon)
    assert 100 < len(expected) < COUNT / 2
    assert calls(page, "select") == [expected.tolist()]

    page.evaluate("(mask) => map.setVisible(Uint8Array.from(mask))", (color == 0).astype(int).tolist())
    page.get_by_role("button", name="Select by drawing").click()
    drag(page, polygon.tolist())
    assert calls(page, "select") == [[i for i in expected.tolist() if color[i] == 0]]
    page.get_by_role("button", name="Select by drawing").click()

    hidden, shown = (next(i for i in range(4, COUNT) if color[i] == kind) for kind in (1, 0))
    page.mouse.move(*screen[shown])
    page.mouse.click(*screen[shown])
    assert page.evaluate("calls") == [["hover", shown], ["hover", -1], ["pick", shown]]
    calls(page, "")
    page.mouse.click(*screen[hidden])
    assert hidden not in calls(page, "pick")

    page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    assert calls(page, "select") == [np.flatnonzero(color == 0).tolist(), []]


@pytest.mark.parametrize("renderer", ["webgl2", "canvas"])
def test_points_have_their_colors_in_light_and_dark(open_map: Any, renderer: str) -> None:
    x, y, color = np.array([-1, 0, 1]), np.array([0, 0, 0]), np.array([0, 1, 1])

    def at(page: Any, i: int) -> Any:
        px, py = located(page, i)[0].round().astype(int)
        return pixels(page)[py - 1 : py + 1, px - 1 : px + 1].mean((0, 1))

    page = open_map(renderer, data=(x, y, color))
    paper = pixels(page)[400, 250]
    assert paper.tolist() == [250, 250, 250]
    assert at(page, 0)[0] > at(page, 0)[2] + 40  # red
    assert at(page, 1)[2] > at(page, 1)[0] + 40  # blue

    page.evaluate("map.select(Uint32Array.of(1))")
    page.wait_for_timeout(200)
    assert abs(at(page, 2) - paper).sum() < 0.5 * abs(at(page, 1) - paper).sum()  # faded next to a selection

    page.evaluate("map.select(new Uint32Array(0)); map.setColor(Uint8Array.of(1, 0, 0), ['blue', 'lime'])")
    page.wait_for_timeout(200)
    assert at(page, 0)[1] > at(page, 0)[2] + 40
    assert at(page, 1)[2] > at(page, 1)[1] + 40

    page.emulate_media(color_scheme="dark")
    page.wait_for_timeout(200)
    assert pixels(page)[400, 250].tolist() == [20, 20, 30]


def test_without_a_graphics_card_or_webgl_the_canvas_draws(open_map: Any) -> None:
    assert open_map(None).get_attribute("#map", "data-renderer") == "canvas"
    page = open_map("webgl2", browser="without WebGL")
    assert page.evaluate("document.createElement('canvas').getContext('webgl2')") is None
    assert page.get_attribute("#map", "data-renderer") == "canvas"
    assert len(np.unique(pixels(page).reshape(-1, 3), axis=0)) > 2


def test_a_lost_context_continues_on_the_canvas(open_map: Any) -> None:
    page = open_map("webgl2")
    page.evaluate("document.querySelector('#map canvas').getContext('webgl2').getExtension('WEBGL_lose_context').loseContext()")
    page.wait_for_selector("#map[data-renderer=canvas]")
    page.wait_for_timeout(200)
    assert len(np.unique(pixels(page).reshape(-1, 3), axis=0)) > 2
    page.mouse.click(*located(page, 9)[0])
    assert calls(page, "pick") == [9]


def test_two_fingers_zoom_and_one_draws_the_lasso(open_map: Any) -> None:
    page = open_map("canvas", has_touch=True)
    touch = page.context.new_cdp_session(page)

    def fingers(kind: str, *places: tuple[int, int]) -> None:
        spots = [{"x": px, "y": py, "id": i} for i, (px, py) in enumerate(places)]
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": spots})

    before = np.ptp(located(page, 0, 1), 0)[0]
    fingers("touchStart", (200, 250), (300, 250))
    fingers("touchMove", (150, 250), (350, 250))
    fingers("touchEnd")
    page.wait_for_function("(wide) => map.locate(1)[0] - map.locate(0)[0] > wide", arg=1.5 * before)
    assert np.ptp(located(page, 0, 1), 0)[0] == pytest.approx(2 * before)
    assert calls(page, "select") == []

    page.get_by_role("button", name="Select by drawing").tap()
    fingers("touchStart", (100, 100))
    for place in ((400, 100), (400, 400), (100, 400)):
        fingers("touchMove", place)
    fingers("touchEnd")
    screen = located(page, *range(COUNT))
    assert calls(page, "select") == [np.flatnonzero(((screen > 100) & (screen < 400)).all(1)).tolist()]


def test_any_polygon_selects_by_the_even_odd_rule(open_map: Any) -> None:
    page, (x, y, _) = open_map("canvas"), points()
    x[5], y[6] = np.nan, np.nan
    random = np.random.default_rng(1)
    for corners in (2, 3, 4, 9, 300):
        polygon = random.uniform(-1.2, 1.2, (corners, 2))
        script = """async ([x, y, polygon]) => [...(await import("/polygon.js")).inside(
            Float32Array.from(x, (v) => v ?? NaN), Float32Array.from(y, (v) => v ?? NaN), polygon)]"""
        plain = [[None if np.isnan(v) else v for v in part.tolist()] for part in (x, y)]
        found = page.evaluate(script, json.loads(json.dumps([*plain, polygon.ravel().tolist()])))
        assert found == ([] if corners < 3 else inside(x.astype(float), y.astype(float), polygon).tolist())


def test_points_without_coordinates_and_none_at_all(open_map: Any) -> None:
    x, y, color = points()
    page = open_map("canvas", data=([float("nan"), *x[1:]], y, color))
    assert page.get_attribute("#map", "data-drawn") == str(COUNT - 1)
    page.focus("#map canvas >> nth=1")
    page.keyboard.press("Enter")
    assert calls(page, "select") == [list(range(1, COUNT))]
    assert open_map("canvas", data=([], [], [])).get_attribute("#map", "data-drawn") == "0"
    open_map("webgl2", data=([0.5], [0.5], [1]))
