"""Take the pictures of the report that the documentation shows: digits with a tenth of the labels wrong, light and dark.

python docs/make_screenshots.py            into docs/images; needs playwright (pip install playwright) and Chromium
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image

from mohs.audit.pipeline import audit

LIMIT = 150_000  # bytes a picture
WIDTH, SCALE = 1200, 1.5
SHOTS = {"summary": None, "map": "#map", "training": "#training"}  # None: what a first screen of HEIGHT pixels shows
HEIGHT, TALL = 1480, 2400
MAP_DRAWN = "() => document.getElementById('map-box').dataset.drawn === 'yes'"
PRINT = "() => dispatchEvent(new Event('beforeprint'))"  # charts off the screen are drawn for a printer too
CHARTS_DRAWN = "() => [...document.querySelectorAll('[data-figure]')].every((figure) => figure.dataset.drawn)"


def main() -> None:
    """Audit, open the report in both colors, and take each picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "images")
    parser.add_argument("--browser", default=shutil.which("chromium") or shutil.which("google-chrome"))
    given = parser.parse_args()
    from playwright.sync_api import sync_playwright

    given.out.mkdir(parents=True, exist_ok=True)
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    flags = ["--disable-background-networking", *(["--no-sandbox"] if root else [])]
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        os.chdir(folder)  # so that the report names a short folder
        report = audit(out=Path("runs/digits"), tell=print).report.resolve()
        browser = playwright.chromium.launch(executable_path=given.browser, args=flags)
        for scheme in ("light", "dark"):
            take(browser, report, scheme, given.out)
        browser.close()


def take(browser: Any, report: Path, scheme: str, out: Path) -> None:
    """All pictures in one scheme of colors."""
    context = browser.new_context(
        viewport={"width": WIDTH, "height": 900}, device_scale_factor=SCALE, color_scheme=scheme, reduced_motion="reduce"
    )
    page = context.new_page()
    page.goto(report.as_uri())
    page.wait_for_function(MAP_DRAWN)
    page.evaluate(PRINT)
    page.wait_for_function(CHARTS_DRAWN)
    page.evaluate("() => document.querySelectorAll('img[loading=lazy]').forEach((img) => { img.loading = 'eager'; })")
    page.wait_for_function("() => [...document.querySelectorAll('#cards > li:not([hidden]) img')].every((img) => img.complete)")
    for name, selector in SHOTS.items():
        page.set_viewport_size({"width": WIDTH, "height": HEIGHT if selector is None else TALL})
        page.evaluate("(at) => at ? document.querySelector(at).scrollIntoView() : scrollTo(0, 0)", selector)
        page.wait_for_timeout(500)  # what the new size moved is drawn again
        png = page.screenshot() if selector is None else page.locator(selector).screenshot()
        save(png, out / f"report-{name}-{scheme}.webp")
    context.close()


def save(png: bytes, path: Path) -> None:
    """As WebP, as good as the limit lets it be."""
    image = Image.open(io.BytesIO(png)).convert("RGB")
    for quality in (85, 75, 65, 50, 35):
        image.save(path, quality=quality, method=6)
        if path.stat().st_size <= LIMIT:
            break
    print(f"{path.name}: {image.width} × {image.height}, {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
