"""Take the pictures of the report and the review in docs/images, light and dark: `python docs/screenshots.py`.

Runs `mohs audit` on digits twice, by features and with a trained network, and opens the reports and the review. Needs Chromium
and playwright.
Pictures are WebP of at most 150 kB, which tests/test_docs.py checks.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

IMAGES = Path(__file__).parent.resolve() / "images"
MOST_BYTES = 150_000
AUDITS: dict[str, tuple[tuple[str, ...], dict[str, str | None]]] = {  # folder: options, and the parts of the report to show
    "digits": ((), {"summary": None, "map": "#map"}),  # None: the top of the page
    "digits-network": (("--embed", "none"), {"training": "#training"}),
}


def save(data: bytes, path: Path) -> None:
    """Write a PNG as WebP at the best quality that is small enough."""
    image = Image.open(io.BytesIO(data)).convert("RGB")
    for quality in range(88, 20, -6):
        image.save(path, quality=quality, method=6)
        if path.stat().st_size <= MOST_BYTES:
            return


def picture(page: Any, report: Path, parts: dict[str, str | None], scheme: str) -> None:
    """Open a report and save its parts."""
    page.goto(report.resolve().as_uri())
    page.wait_for_function("document.getElementById('map-box')?.dataset.drawn === 'yes'")
    for figure in page.query_selector_all("#training [data-figure]"):
        figure.scroll_into_view_if_needed()
        page.wait_for_function("(figure) => figure.dataset.drawn === 'yes'", arg=figure)
    for name, part in parts.items():
        page.evaluate("scrollTo(0, 0)")
        if part is None:
            shot = page.screenshot()
        else:
            page.add_style_tag(content="body > header, nav { position: static !important; }")  # not over the picture
            shot = page.locator(part).screenshot()
        save(shot, IMAGES / f"report-{name}-{scheme}.webp")


def review_pictures(browser: Any, run: Path) -> None:
    """Start the review of an audit, decide on a few examples, and save the map in light and an example in dark."""
    words = [sys.executable, "-m", "mohs", "review", str(run), "--no-open", "--json", "--as", "ada"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = json.loads(server.stdout.readline())["address"]
        for scheme in ("light", "dark"):
            page = browser.new_page(viewport={"width": 1400, "height": 860}, color_scheme=scheme, device_scale_factor=1.25)
            page.goto(address)
            page.wait_for_selector("article.card[data-row]")
            page.click("#start")
            for key in "aaka" if scheme == "light" else "":
                page.wait_for_selector("#example[data-loaded=yes]")
                row = page.get_attribute("#example", "data-row")
                page.keyboard.press(key)
                page.wait_for_selector(f"#example:not([data-row='{row}'])")
            page.wait_for_selector("#example[data-loaded=yes]")
            page.wait_for_timeout(1500)  # until its pictures are there
            if scheme == "dark":
                save(page.screenshot(), IMAGES / "review-example-dark.webp")
            page.keyboard.press("Escape")
            page.goto(address.split("?")[0] + "?page=map&color=label&sort=")
            page.wait_for_selector(".canvas[data-drawn]")
            page.wait_for_timeout(1500)
            if scheme == "light":
                save(page.screenshot(), IMAGES / "review-map-light.webp")
        server.terminate()


def main() -> None:
    """Audit, then open each report in both color schemes, and the review."""
    os.chdir(tempfile.mkdtemp())  # so that the reports name a short folder
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for folder, (options, parts) in AUDITS.items():
            out = Path("runs") / folder
            subprocess.run([sys.executable, "-m", "mohs", "audit", *options, "--out", str(out)], check=True)
            for scheme in ("light", "dark"):
                page = browser.new_page(viewport={"width": 1200, "height": 1840}, device_scale_factor=1.5, color_scheme=scheme)
                picture(page, out / "report.html", parts, scheme)
        review_pictures(browser, Path("runs/digits"))
        browser.close()


if __name__ == "__main__":
    main()
