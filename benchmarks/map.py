"""The map of `mohs review` at 10⁶ points in Chromium without a graphics card, and other components beside it.

    python benchmarks/map.py [--points 1000000] [--policy] canvas webgl2 [NAME=MODULE.js ...]

A module is an ES module without imports that sets `window.start = async ({x, y, color, palette, width, height, box}) => ...`,
draws into `box`, and sets `window.selected = performance.now()` when a lasso (Shift and drag) has found its points. Those of
results/review.md were bundled with `esbuild --bundle --minify --format=esm`. `--policy` serves the page under the
content-security policy of the app.

Printed for each, in milliseconds: first picture, a step of a pan and of a zoom by the clock (the best and the median of 12) and
in processor time of all browser processes, which a busy machine changes little; and from the end of a lasso to its points.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from playwright.sync_api import sync_playwright

import mohs
from mohs.review.access import POLICY
from review import browser_processor

from machine import machine

WEB = Path(mohs.__file__).parent / "review" / "web"
WIDTH, HEIGHT, STEPS = 1000, 700, 12
FLAGS = ["--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist"]
PAGE = '<!doctype html><link rel="stylesheet" href="page.css"><div id="box"></div><script type="module" src="main.js"></script>'
STYLE = f"body {{ margin: 0; background: #fff }} #box {{ width: {WIDTH}px; height: {HEIGHT}px; position: relative }}"
OWN = """
import { createMap } from "./map.js";
window.start = async ({ box, ...points }) => {
  createMap(box, { ...points, renderer: "RENDERER", onSelect: () => { window.selected = performance.now(); } });
};
"""
MAIN = """
import "./component.js";
let state = 12345;
const random = () => ((state = (Math.imul(state, 1664525) + 1013904223) >>> 0) / 4294967296);
const normal = () => Math.sqrt(-2 * Math.log(random() + 1e-12)) * Math.cos(2 * Math.PI * random());
const x = new Float32Array(POINTS), y = new Float32Array(POINTS), color = new Uint8Array(POINTS);
const centers = Array.from({ length: 10 }, () => [random() * 1.4 - 0.7, random() * 1.4 - 0.7]);
for (let i = 0; i < POINTS; i += 1) {
  color[i] = random() * 10;
  [x[i], y[i]] = centers[color[i]].map((at) => Math.max(-1, Math.min(1, at + 0.1 * normal())));
}
const palette = ["#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf"];
window.begin = () => window.start({ x, y, color, palette, width: WIDTH, height: HEIGHT, box: document.getElementById("box") });
addEventListener("pointerup", () => { window.released = performance.now(); }, true);
addEventListener("mouseup", () => { window.released ??= performance.now(); }, true);
window.ready = true;
"""
FRAMES = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


def measure(page: Any) -> dict[str, Any]:
    """First picture, pan, zoom and lasso of the component on this page."""
    found: dict[str, Any] = {}
    session = page.context.new_cdp_session(page)

    def colors() -> int:
        clip = {"x": 100, "y": 100, "width": 600, "height": 400, "scale": 0.25}
        shot = base64.b64decode(session.send("Page.captureScreenshot", {"format": "png", "clip": clip})["data"])
        return len(np.unique(np.asarray(Image.open(io.BytesIO(shot)).convert("RGB")).reshape(-1, 3), axis=0))

    used, began = browser_processor(), time.perf_counter()
    page.evaluate("() => { window.begin(); }")
    while colors() < 200:
        if time.perf_counter() - began > 60:
            return {"first picture": "none in 60 s"}
    found["first picture"], found["first picture, processor"] = time.perf_counter() - began, browser_processor() - used
    page.wait_for_timeout(2000)

    def steps(name: str, step: Callable[[int], None]) -> None:
        page.evaluate(FRAMES)
        page.wait_for_timeout(1000)
        used, seconds = browser_processor(), []
        for i in range(STEPS):
            began = time.perf_counter()
            step(i)
            page.evaluate(FRAMES)
            seconds.append(time.perf_counter() - began)
        page.wait_for_timeout(300)
        found[name], found[f"{name}, best"] = float(np.median(seconds)), min(seconds)
        found[f"{name}, processor"] = (browser_processor() - used) / STEPS

    page.mouse.move(500, 350)
    page.mouse.down()
    page.mouse.move(510, 350)
    steps("pan", lambda i: page.mouse.move(510 + 8 * i, 350 + 3 * i))
    page.mouse.up()
    steps("zoom", lambda i: page.mouse.wheel(0, -30 if i < STEPS / 2 else 30))
    page.wait_for_timeout(1500)

    turn, taken = np.linspace(0, 2 * np.pi, 24), []
    for radius in (250, 230, 210):
        page.evaluate("() => { window.selected = 0; window.released = null; }")
        page.keyboard.down("Shift")
        page.mouse.move(500 + radius, 350)
        page.mouse.down()
        for angle in turn[1:]:
            page.mouse.move(500 + radius * np.cos(angle), 350 + radius * np.sin(angle))
        page.mouse.up()
        page.keyboard.up("Shift")
        try:
            page.wait_for_function("() => window.selected", timeout=20_000)
        except Exception:  # Playwright's timeout: the component does not answer
            return found | {"lasso": "no points in 20 s"}
        taken.append(page.evaluate("() => window.selected - window.released") / 1000)
        page.wait_for_timeout(1000)
    return found | {"lasso": float(np.median(taken)), "lasso, slowest": max(taken)}


def serving(files: dict[str, str], policy: str | None) -> Callable[[Any], None]:
    """A handler of Playwright's routes that answers with these files."""

    def serve(route: Any) -> None:
        name = route.request.url.rsplit("/", 1)[1]
        kind = {".css": "text/css", ".js": "text/javascript"}.get(Path(name).suffix, "text/html")
        headers = {} if policy is None else {"Content-Security-Policy": policy}
        route.fulfill(body=files.get(name, ""), content_type=kind, headers=headers)

    return serve


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("components", nargs="+", help="canvas, webgl2, or NAME=MODULE.js")
    parser.add_argument("--points", type=int, default=1_000_000, help="number of points")
    parser.add_argument("--policy", action="store_true", help="serve the page under the app's content-security policy")
    options = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    numbers = {"POINTS": options.points, "WIDTH": WIDTH, "HEIGHT": HEIGHT}
    main_script = "\n".join([*(f"const {name} = {value};" for name, value in numbers.items()), MAIN.strip()])
    print(json.dumps(machine()))
    with sync_playwright() as playwright:
        for component in options.components:
            name, _, module = component.partition("=")
            own = {path.name: path.read_text(encoding="utf-8") for path in WEB.glob("*.js")}
            script = Path(module).read_text(encoding="utf-8") if module else OWN.replace("RENDERER", name)
            served = {**own, "": PAGE, "page.css": STYLE, "main.js": main_script, "component.js": script}

            root = ["--no-sandbox"] if os.geteuid() == 0 else []
            with playwright.chromium.launch(executable_path=chromium, args=[*FLAGS, *root]) as browser:
                page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
                page.set_default_timeout(120_000)
                said: list[str] = []
                page.on("console", lambda message, said=said: said.append(message.text))
                page.on("pageerror", lambda error, said=said: said.append(str(error)))
                page.route("**/*", serving(served, POLICY if options.policy else None))
                page.goto("http://map.test/")
                page.wait_for_function("() => window.ready")
                found = measure(page) | {
                    "browser": browser.version,
                    "load": round(os.getloadavg()[0], 1),
                    "said": sorted(set(said)),
                }
            print(
                json.dumps({"component": name, **{k: round(v, 3) if isinstance(v, float) else v for k, v in found.items()}}),
                flush=True,
            )


if __name__ == "__main__":
    main()
