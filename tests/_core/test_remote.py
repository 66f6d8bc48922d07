"""Addresses of object stores, against an S3 server on this machine (moto)."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from mohs._core import remote
from mohs._core.errors import DataError
from mohs.cli.audit import audit
from mohs.cli.score import score
from mohs.hardness import shards

N, D, K = 600, 8, 3
rng = np.random.default_rng(0)
LABELS = rng.integers(K, size=N)
LOGITS = (4 * np.eye(K)[LABELS] + rng.normal(size=(N, K))).astype(np.float32)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    where = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command = shutil.which("moto_server", path=where)
    if command is None:
        pytest.skip("no S3 server here: pip install 'moto[s3,server]'")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([command, "-p", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def write_shards(folder: str, system: fs.FileSystem) -> None:
    for number, own in enumerate(np.array_split(np.arange(N), 2)):
        table = pa.table({"logits": list(LOGITS[own]), "label": LABELS[own]})
        pq.write_table(table, f"{folder}/{number}.parquet", row_group_size=100, filesystem=system)


@pytest.fixture
def bucket(server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A bucket with two shards of logits, and the environment that says where it is."""
    names = {"AWS_ENDPOINT_URL": server, "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_REGION": "us-east-1"}
    for name, value in names.items():
        monkeypatch.setenv(name, value)
    system = fs.S3FileSystem(endpoint_override=server, region="us-east-1", allow_bucket_creation=True, allow_delayed_open=True)
    system.create_dir("data")
    write_shards("data/shards", system)
    remote.filesystem.cache_clear()
    return "s3://data"


def test_shards_are_scored_in_place_and_the_table_is_uploaded(bucket: str, tmp_path: Path) -> None:
    score(f"{bucket}/shards", out=f"{bucket}/results/hardness.parquet", quiet=True)
    (tmp_path / "shards").mkdir()
    write_shards(str(tmp_path / "shards"), fs.LocalFileSystem())
    score(str(tmp_path / "shards"), out=str(tmp_path / "h.parquet"), quiet=True)
    system, path = remote.opened_at(f"{bucket}/results/hardness.parquet")
    assert pq.read_table(path, filesystem=system).equals(pq.read_table(tmp_path / "h.parquet"))


def test_an_audit_reads_and_writes_addresses(bucket: str, tmp_path: Path) -> None:
    audit(f"{bucket}/shards", stream=True, out=f"{bucket}/audit", runs=tmp_path, device="cpu", quiet=True)
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


def test_addresses_and_paths_are_told_apart() -> None:
    assert all(map(remote.is_remote, ("s3://bucket/x", "gs://b", "hf://datasets/me/x")))
    assert not any(map(remote.is_remote, ("shards/", "/tmp/s3:/x", "C://x", Path("s3:") / "b")))
