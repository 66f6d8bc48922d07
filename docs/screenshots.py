"""Take the pictures of the report in docs/images, light and dark: `python docs/screenshots.py runs/digits/report.html`.

Needs Chromium and playwright. Pictures are WebP of at most 150 kB, which tests/test_docs.py checks.
"""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

IMAGES = Path(__file__).parent / "images"
MOST_BYTES = 150_000
PARTS = {"summary": None, "map": "#map", "training": "#training"}  # None: the top of the page


def save(data: bytes, path: Path) -> None:
    """Write a PNG as WebP at the best quality that is small enough."""
    image = Image.open(io.BytesIO(data)).convert("RGB")
    for quality in range(88, 20, -6):
        image.save(path, quality=quality, method=6)
        if path.stat().st_size <= MOST_BYTES:
            return


def main(report: Path) -> None:
    """Open the report in both color schemes and save each part."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            page = browser.new_page(viewport={"width": 1200, "height": 1480}, device_scale_factor=1.5, color_scheme=scheme)
            page.goto(report.resolve().as_uri())
            page.wait_for_function("document.getElementById('map-box')?.dataset.drawn === 'yes'")
            for figure in page.query_selector_all("#training [data-figure]"):
                figure.scroll_into_view_if_needed()
                page.wait_for_function("(figure) => figure.dataset.drawn === 'yes'", arg=figure)
            for name, part in PARTS.items():
                page.evaluate("scrollTo(0, 0)")
                shot = page.screenshot() if part is None else page.locator(part).screenshot()
                save(shot, IMAGES / f"report-{name}-{scheme}.webp")
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
