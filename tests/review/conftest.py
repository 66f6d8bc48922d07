"""Audits to review: small made ones with pictures, neighbors and a map, and one whose every name means harm."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from http.client import HTTPConnection
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
import torch
from PIL import Image

from mohs.audit.evidence import evidence_table
from mohs.audit.result import AuditResult, save_audit
from mohs.hardness.table import add_columns, make_table

SPEC = spec_from_file_location("report_fixtures", Path(__file__).parents[1] / "report" / "conftest.py")
assert SPEC is not None
assert SPEC.loader is not None
REPORT = module_from_spec(SPEC)
SPEC.loader.exec_module(REPORT)
HOSTILE: list[str] = REPORT.HOSTILE
TOKEN = "a-token-for-tests"
ADDRESS = re.compile(r'"address": "http://127\.0\.0\.1:(\d+)/')


def made_audit(folder: Path, count: int = 240, classes: Sequence[str] = ("cat", "dog", "owl"), **options: Any) -> AuditResult:
    """The folder of an audit of small pictures, every tenth of which is flagged with growing certainty."""
    rng = np.random.default_rng(0)
    label = np.arange(count) % len(classes)
    flagged = np.arange(count) % 10 == 3
    suggested = np.where(flagged, (label + 1) % len(classes), label)
    chance = np.where(flagged, 0.7 + 0.29 * np.arange(count) / count, 0.02 + 0.2 * rng.random(count))
    pictures = folder / "pictures"
    pictures.mkdir(parents=True)
    paths = []
    for i in range(count):
        paths.append(str(pictures / f"picture_{i:04}.png"))
        if i % 40 != 39:  # a few files are gone
            color = tuple(int(v) for v in 60 + 150 * np.eye(3)[label[i] % 3])
            Image.new("RGB", (96, 72), color).save(pictures / f"picture_{i:04}.png", compress_level=1)
    columns = {
        "id": options.get("ids") or [f"ex-{i}" for i in range(count)],
        "path": paths,
        "label": [classes[i] for i in label],
        "predicted": [classes[i] for i in suggested],
        "margin": rng.normal(size=count),
        "confidence": 1 - chance,
    }
    verdicts = np.where(flagged, "mislabeled", np.where(rng.random(count) < 0.2, "hard", "easy"))
    more = {
        "p_mislabeled": chance, "p_easy": 1 - chance, "p_hard": 0 * chance, "p_ambiguous": 0 * chance,
        "verdict": verdicts.tolist(),
        "suggested_label": [classes[i] for i in suggested], "mohs": 1 + np.arange(count) % 10,
        "why": [f"predicted {classes[i]}" for i in suggested],
        "map_x": np.cos(2 * np.pi * label / len(classes)) + 0.1 * rng.normal(size=count),
        "map_y": np.sin(2 * np.pi * label / len(classes)) + 0.1 * rng.normal(size=count),
    }  # fmt: skip
    table = add_columns(make_table(columns, classes=list(classes)), more | options.get("more", {}))
    probs = np.full((count, len(classes)), 0.05)
    probs[np.arange(count), suggested] = 0.9
    near = torch.stack([(torch.arange(count) + step) % count for step in (1, 2, 3)], 1)
    result = AuditResult(
        table=table,
        name=options.get("name", "made pictures"),
        data_hash="0123456789abcdef",
        classes=list(classes),
        evidence=evidence_table(probs, classes, (near, torch.tensor([[0.999, 0.9, 0.8]]).repeat(count, 1))),
        thumbnails=lambda rows: [Image.new("RGB", (64, 64), (90, 90, 200)) for _ in rows],
    )
    save_audit(result, folder)
    return result


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a small audit."""
    made_audit(tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def hostile_run(tmp_path: Path) -> Path:
    """An audit in which classes, ids, texts, reasons and the name are attacks."""
    ids = [f"{HOSTILE[i % len(HOSTILE)]}{i}" for i in range(80)]
    made_audit(tmp_path / "run", 80, HOSTILE, ids=ids, name=HOSTILE[0], more={"path": ids, "why": ids})
    return tmp_path / "run"


class Client:
    """Requests to a running server, as its page makes them."""

    port: int

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def request(self, method: str, path: str, body: Any = None, **headers: str | None) -> tuple[int, dict[str, str], bytes]:
        """A request as the page makes it; headers given as None are left out."""
        own: dict[str, str | None] = {"Host": f"127.0.0.1:{self.port}", "Cookie": f"mohs-review-{self.port}={TOKEN}"}
        if method == "POST":
            own["Origin"] = self.address
        own |= {name.replace("_", "-"): value for name, value in headers.items()}
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in own.items():
                if value is not None:
                    connection.putheader(name, value)
            connection.putheader("Content-Length", str(len(data or b"")))
            connection.endheaders(data)
            answer = connection.getresponse()
            return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def get(self, path: str, parameters: Sequence[tuple[str, str]] = ()) -> Any:
        status, _, data = self.request("GET", f"{path}?{urlencode(parameters)}" if parameters else path)
        assert status == 200, (status, data)
        return json.loads(data)

    def post(self, path: str, body: Any) -> Any:
        status, _, data = self.request("POST", path, body)
        assert status == 200, (status, data)
        return json.loads(data)

    def rows(self, *parameters: tuple[str, str]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("/api/view", parameters)["rows"]
        return found


class Served(Client):
    """The server in a thread of this process."""

    def __init__(self, run: Path, **options: Any) -> None:
        import uvicorn

        from mohs.review.access import Access
        from mohs.review.review import open_review
        from mohs.review.server import create_app, listen
        from mohs.review.source import open_source

        self.review = open_review(open_source(run, **options))
        sock, self.port = listen("127.0.0.1", 0)
        app = create_app(self.review, Access(TOKEN, port=self.port), "ada")
        self.server = uvicorn.Server(
            uvicorn.Config(app, log_level="error", lifespan="off", ws="none", timeout_graceful_shutdown=1)
        )
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [sock]}, daemon=True)
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)

    def close(self) -> None:
        self.server.should_exit = True
        self.thread.join(10)
        self.review.close()


class Process(Client):
    """`mohs review` as a process of its own."""

    def __init__(self, run: Path, *options: str) -> None:
        words = [sys.executable, "-m", "mohs", "review", str(run), "--no-open", "--json", "--token", TOKEN, "--as", "ada"]
        words += options
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        found = ADDRESS.search(self.process.stdout.readline())
        assert found is not None
        self.port = int(found[1])

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(10)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(10)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def serve() -> Iterator[Callable[..., Client]]:
    """Serve a folder or table, in a thread or (process=True) as a process; it is stopped at the end of the test."""
    running: list[Served | Process] = []

    def start(run: Path, *words: str, process: bool = False, **options: Any) -> Client:
        running.append(Process(run, *words) if process else Served(run, **options))
        return running[-1]

    yield start
    for one in running:
        one.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """One server for the tests that only knock at it."""
    folder = tmp_path_factory.mktemp("shared") / "run"
    made_audit(folder, 60)
    server = Served(folder)
    yield server
    server.close()
