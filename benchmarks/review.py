"""`mohs review` on an audit with 10⁶ rows, against the targets that it was built for.

    python benchmarks/review.py [--rows 1000000] [--keep FOLDER] [--out results/review.json]

A script makes the folder of an audit: the hardness table with all columns, places on the map, neighbors and probabilities, and
image files. The server is the command that users start; its requests are timed over HTTP, the page in Chromium without a
graphics card. Seconds are those of the clock; `processor` adds the time that server and browser computed, which a busy machine
changes little, and `load` how many processes wanted the processor meanwhile.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pyarrow as pa
import torch
from PIL import Image

from mohs.audit.evidence import evidence_table
from mohs.audit.result import AuditResult, save_audit
from mohs.hardness.table import make_table

from machine import machine

CLASSES = [f"class {i:02}" for i in range(40)]
FILES, NEIGHBORS = 4000, 10
VIEWS, PAGES, PAGE = 60, 25, 48  # requests timed; pictures of a page
DECISIONS = 60
CONNECTIONS = 6  # of a browser to one server
TICK = os.sysconf("SC_CLK_TCK")
TARGETS = {  # seconds, bytes, or decisions a minute
    "first screen": 3.0,
    "filter and sort, p95": 0.2,
    "page of thumbnails, p95": 0.3,
    "lasso": 0.3,
    "export": 5.0,
    "server memory": 1.5e9,
    "decisions a minute": 40,
}


def make_audit(folder: Path, rows: int) -> Path:
    """The folder of an audit of images, a tenth of whose labels are wrong."""
    random = np.random.default_rng(0)
    images = folder / "images"
    images.mkdir(parents=True)
    for i in range(min(FILES, rows)):
        coarse = Image.fromarray(random.integers(256, size=(6, 8, 3), dtype=np.uint8))
        coarse.resize((400, 300), Image.Resampling.BICUBIC).save(images / f"{i:06}.jpg", quality=85)
    centers = random.normal(size=(len(CLASSES), 2)) * 4
    truth = random.integers(len(CLASSES), size=rows)
    wrong = random.random(rows) < 0.1
    label = np.where(wrong, (truth + random.integers(1, len(CLASSES), rows)) % len(CLASSES), truth)
    chance = np.clip(np.where(wrong, random.beta(8, 2, rows), random.beta(1, 20, rows)), 0, 1).astype(np.float32)
    flagged = chance > 0.5
    hard, ambiguous = random.dirichlet([2, 1, 10], rows)[:, :2].T * (1 - chance[:, None]).T
    verdict = np.where(flagged, 3, np.where(hard > 0.25, 1, np.where(ambiguous > 0.15, 2, 0)))
    scores = [
        "confidence", "top_confidence", "margin", "loss", "el2n", "avh", "avc", "norm", "norm_in_class", "entropy", "energy",
        "aum", "mean_margin", "mean_confidence", "variability", "mean_avh", "neighbors", "p_suggested",
    ]  # fmt: skip
    reasons = ["3 of 10 neighbors have its label", "all heads agree with its label", "two classes are as probable"]
    place = centers[truth] + random.normal(size=(rows, 2))
    names = pa.array(CLASSES)
    table = make_table(
        {
            "id": pa.array([f"{i:07}" for i in range(rows)]),
            "path": pa.array([f"{i % FILES:06}.jpg" for i in range(rows)]),
            "label": names.take(pa.array(label)),
            "predicted": names.take(pa.array(truth)),
            **{name: random.normal(size=rows).astype(np.float32) for name in scores},
            "forgetting": random.poisson(2, rows),
            "first_learned": random.integers(20, size=rows),
            "epochs": np.full(rows, 20),
            "p_easy": (1 - chance - hard - ambiguous).astype(np.float32),
            "p_hard": hard.astype(np.float32),
            "p_ambiguous": ambiguous.astype(np.float32),
            "p_mislabeled": chance,
            "verdict": pa.array(["easy", "hard", "ambiguous", "mislabeled"]).take(pa.array(verdict)),
            "suggested_label": names.take(pa.array(np.where(flagged, truth, label))),
            "why": pa.array(reasons).take(pa.array(random.integers(len(reasons), size=rows))),
            "mohs": random.integers(1, 11, size=rows),
            "map_x": place[:, 0].astype(np.float32),
            "map_y": place[:, 1].astype(np.float32),
        },
        classes=CLASSES,
    )
    probs = np.full((rows, len(CLASSES)), 1e-3, np.float32)
    probs[np.arange(rows), truth] = 0.9
    near = torch.randint(rows, (rows, NEIGHBORS)), torch.rand(rows, NEIGHBORS)
    result = AuditResult(
        table=table, name="made by a script", data_hash="5c21b7", classes=CLASSES, evidence=evidence_table(probs, CLASSES, near)
    )
    return save_audit(result, folder / "run")


@dataclass
class Process:
    """A process of this machine: name, parent, and seconds of processor time."""

    name: str
    parent: int
    seconds: float


def processes() -> dict[int, Process]:
    """The processes of this machine by their number."""
    found = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            before, _, after = file.read_text().rpartition(")")
            fields = after.split()
            name = before.partition("(")[2]
            found[int(file.parent.name)] = Process(name, int(fields[1]), (int(fields[11]) + int(fields[12])) / TICK)
    return found


def browser_processor() -> float:
    """Seconds of processor time that the browser's processes have used, as far as this process started them."""
    running = processes()

    def ours(number: int) -> bool:
        return number == os.getpid() or (number in running and ours(running[number].parent))

    return sum(one.seconds for number, one in running.items() if "chrom" in one.name and ours(number))


@dataclass
class Server:
    """A running `mohs review`: its address, process, and the cookie that it asks for."""

    address: str
    process: subprocess.Popen[str]
    cookie: str = ""

    @property
    def port(self) -> int:
        return urlsplit(self.address).port or 0

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)

    def get(self, path: str, connection: http.client.HTTPConnection | None = None) -> bytes:
        """The body of a response, which must be a success; like a browser, asks again if the server closed an idle connection."""
        connection = connection or self.connect()
        try:
            connection.request("GET", path, headers={"Cookie": self.cookie})
            response = connection.getresponse()
        except (http.client.RemoteDisconnected, ConnectionError):
            connection.close()
            connection.request("GET", path, headers={"Cookie": self.cookie})
            response = connection.getresponse()
        body = response.read()
        if response.status != 200:
            raise RuntimeError(f"{path}: {response.status} {body[:200]!r}")
        return body

    def processor(self) -> float:
        """Seconds of processor time that the server has used."""
        return processes()[self.process.pid].seconds

    def memory(self) -> dict[str, int]:
        """Resident bytes: now, and the most so far."""
        lines = dict(line.split(":", 1) for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines())
        return {name: int(lines[key].split()[0]) * 1024 for name, key in (("now", "VmRSS"), ("peak", "VmHWM"))}


@contextmanager
def serving(folder: Path) -> Iterator[Server]:
    """`mohs review` of the folder, until the block ends."""
    command = [
        sys.executable,
        "-m",
        "mohs",
        "review",
        str(folder / "run"),
        "--images",
        str(folder / "images"),
        "--no-open",
        "--json",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        server = Server(json.loads(process.stdout.readline())["address"], process)
        parts = urlsplit(server.address)
        connection = server.connect()
        connection.request("GET", f"{parts.path}?{parts.query}")
        response = connection.getresponse()
        response.read()
        server.cookie = (response.getheader("set-cookie") or "").partition(";")[0]
        yield server
    finally:
        process.terminate()
        process.wait(10)


def p95(seconds: list[float]) -> float:
    return float(np.quantile(seconds, 0.95))


def timed(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def views(random: np.random.Generator) -> Iterator[str]:
    """Filters and orders as a reviewer would click them together."""
    orders = ["queue", "-p_mislabeled", "p_mislabeled", "-loss", "margin", "-entropy", "label", "-mohs", "id", "-variability"]
    for _ in range(VIEWS):
        asked = [("sort", str(random.choice(orders)))]
        if random.random() < 0.6:
            asked += [("is.label", str(name)) for name in random.choice(CLASSES, random.integers(1, 4), replace=False)]
        if random.random() < 0.5:
            asked += [("is.verdict", str(random.choice(["easy", "hard", "ambiguous", "mislabeled"])))]
        if random.random() < 0.4:
            low = random.random() * 0.9
            asked += [("in.p_mislabeled", f"{low:.3f}..{low + 0.1:.3f}")]
        if random.random() < 0.2:
            asked += [("decided", "no")]
        if random.random() < 0.1:
            asked += [("find", f"{random.integers(10_000):04}")]
        yield urlencode(asked)


def measure_server(server: Server, rows: int) -> dict[str, Any]:
    """Requests over HTTP: views, facets, pictures, the map, a selection of half of the rows, exports."""
    random = np.random.default_rng(1)
    server.get("/api/about")
    connection, used, began = server.connect(), server.processor(), time.perf_counter()
    taken = {asked: timed(lambda asked=asked: server.get(f"/api/view?{asked}", connection)) for asked in views(random)}
    found: dict[str, Any] = {
        "filter and sort, p95": p95(list(taken.values())),
        "filter and sort, median": float(np.median(list(taken.values()))),
        "filter and sort, processor": (server.processor() - used) / len(taken),
        "filter and sort, slowest": max(taken, key=taken.__getitem__),
        "facets, p95": p95(
            [timed(lambda asked=asked: server.get(f"/api/facets?{asked}", connection)) for asked in list(taken)[:20]]
        ),
    }
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        connections = [server.connect() for _ in range(CONNECTIONS)]

        def page() -> None:
            wanted = random.integers(rows, size=PAGE)

            def some(k: int) -> None:
                for row in wanted[k::CONNECTIONS]:
                    server.get(f"/picture/{row}/320", connections[k])

            list(pool.map(some, range(CONNECTIONS)))

        page()
        used = server.processor()
        seconds = [timed(page) for _ in range(PAGES)]
    examples = [f"/api/example?row={row}" for row in random.integers(rows, size=30)]
    found |= {
        "page of thumbnails, p95": p95(seconds),
        "page of thumbnails, median": float(np.median(seconds)),
        "page of thumbnails, processor": (server.processor() - used) / PAGES,
        "example, p95": p95([timed(lambda path=path: server.get(path, connection)) for path in examples]),
        "map": timed(lambda: server.get("/api/map", connection)),
        "map colors": timed(lambda: server.get("/api/map/colors?by=verdict", connection)),
        "pairs": timed(lambda: server.get("/api/pairs", connection)),
    }
    for kind in ("csv", "parquet", "json"):
        used = server.processor()
        name = "export" if kind == "csv" else f"export, {kind}"
        found[name] = timed(lambda kind=kind: server.get(f"/api/export/{kind}", connection))
        found[f"{name}, processor"] = server.processor() - used
    found["server memory"], found["server memory, at the end"] = server.memory()["peak"], server.memory()["now"]
    found["load"], found["seconds"] = os.getloadavg()[0], time.perf_counter() - began
    return found


SHOWN = """() => {
  const pictures = [...document.querySelectorAll("#grid .card img")].filter((one) => {
    const box = one.getBoundingClientRect(); return box.bottom > 0 && box.top < innerHeight; });
  return pictures.length > 0 && pictures.every((one) => one.complete && one.naturalWidth > 0);
}"""
WATCH = """() => {
  const send = window.fetch;
  addEventListener("pointerup", () => { window.released = performance.now(); }, true);
  window.fetch = (path, ...more) => {
    if (path === "api/select") window.selected = performance.now();
    return send(path, ...more);
  };
}"""

NEXT = """(row) => {
  const { dataset } = document.getElementById("example");
  return dataset.row !== row && dataset.loaded === "yes";
}"""


def measure_page(server: Server) -> dict[str, Any]:
    """The page in Chromium: first screen, map, lasso, and a scripted reviewer who decides by keys once the example is there."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    found: dict[str, Any] = {}

    def used() -> float:
        return server.processor() + browser_processor()

    with sync_playwright() as playwright, playwright.chromium.launch(executable_path=chromium, args=flags) as browser:
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.set_default_timeout(120_000)
        page.goto("about:blank")
        before, began = used(), time.perf_counter()
        page.goto(server.address, wait_until="commit")
        page.wait_for_function(SHOWN)
        found["first screen"], found["first screen, processor"] = time.perf_counter() - began, used() - before

        page.evaluate(WATCH)
        before, began = used(), time.perf_counter()
        page.click("button[data-page=map]")
        page.wait_for_selector("#map [data-drawn]")
        found["map, first picture"], found["map, first picture, processor"] = time.perf_counter() - began, used() - before
        found["map, renderer"] = page.get_attribute("#map [data-drawn]", "data-renderer")
        box = page.locator("#map [data-drawn]").bounding_box()
        assert box is not None
        lassos, grids = [], []
        for share in (0.45, 0.4, 0.35, 0.3, 0.25):
            turn = np.linspace(0, 2 * np.pi, 40)
            x = box["x"] + box["width"] / 2 + share * box["width"] * np.cos(turn)
            y = box["y"] + box["height"] / 2 + share * box["height"] * np.sin(turn)
            drawn = page.get_attribute("#grid", "data-drawn")
            page.evaluate("window.selected = 0")
            page.keyboard.down("Shift")
            page.mouse.move(x[0], y[0])
            page.mouse.down()
            for k in range(1, len(turn)):
                page.mouse.move(x[k], y[k])
            page.mouse.up()
            page.keyboard.up("Shift")
            page.wait_for_function("() => window.selected")
            lassos.append(page.evaluate("window.selected - window.released") / 1000)
            page.wait_for_function("(drawn) => document.getElementById('grid').dataset.drawn !== drawn", arg=drawn)
            grids.append(page.evaluate("performance.now() - window.released") / 1000)
        found |= {
            "lasso": max(lassos),
            "lasso, median": float(np.median(lassos)),
            "lasso to grid, median": float(np.median(grids)),
        }

        page.goto(server.address)
        page.wait_for_function(SHOWN)
        page.click("#start")
        page.wait_for_selector("#example[data-loaded=yes]")
        before, began = used(), time.perf_counter()
        for i in range(DECISIONS):
            row = page.get_attribute("#example", "data-row")
            page.keyboard.press("aakx"[i % 4])
            page.wait_for_function(NEXT, arg=row)
        found["decisions a minute"] = DECISIONS / (time.perf_counter() - began) * 60
        found["decision, processor"] = (used() - before) / DECISIONS
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="number of examples")
    parser.add_argument("--keep", type=Path, help="folder of the audit, made if it does not exist; default: a temporary one")
    parser.add_argument("--out", type=Path, help="JSON file for the result")
    options = parser.parse_args()
    folder = options.keep or Path(tempfile.mkdtemp())
    try:
        if not (folder / "run").exists():
            print(f"made in {timed(lambda: make_audit(folder, options.rows)):.0f} s", flush=True)
        began = time.perf_counter()
        with serving(folder) as server:
            found = {"start": time.perf_counter() - began}
            found |= measure_page(server)
            found |= measure_server(server, options.rows)
    finally:
        if options.keep is None:
            shutil.rmtree(folder)
    for name, value in found.items():
        target = TARGETS.get(name)
        print(
            f"{name:32} {value if isinstance(value, str) else f'{value:12,.3f}'}" + (f"   (target {target:,})" if target else "")
        )
    if options.out:
        options.out.write_text(
            json.dumps({"machine": machine(), "rows": options.rows, "found": found, "targets": TARGETS}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
