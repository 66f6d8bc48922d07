"""Studies and tables on a Ray cluster of two nodes: bit for bit those of one process, also when a node is killed, twice."""

from __future__ import annotations

import builtins
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from mohs._core.errors import DataError
from mohs._core.executor import RayTasks, _Actor, executor_on
from mohs.audit.audit_files import audit_files
from mohs.audit.pipeline import run_audit
from mohs.data.open_stream import open_stream
from mohs.embed.embed_files import embed_files
from mohs.hardness.score_files import score_files
from mohs.hardness.shards import Source, open_source
from mohs.studies.recipe import read_recipe
from mohs.studies.run_study import run_study

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'mohs[ray]'")
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own
N, D, K = 60_000, 16, 4
LAYER = """
import time, torch
weight = torch.randn(32, 3, 5, 5, generator=torch.Generator().manual_seed(0))
def features(images):
    time.sleep(0.1)  # long enough to be killed meanwhile
    return torch.nn.functional.conv2d(images.float(), weight).relu().mean((2, 3))
"""


class Nodes:
    """A cluster of nodes with a processor each: the head, and others that can be killed."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self.cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        self.others = [self.cluster.add_node(num_cpus=1)]
        ray.init(address=self.cluster.address, log_to_driver=False)

    def during(self, work: Callable[[], Any], done: Callable[[], int], at: tuple[int, ...]) -> Any:
        """The result of the work, during which a node is killed whenever `done` has counted to one of these numbers."""
        while len(self.others) < len(at):
            self.others.append(self.cluster.add_node(num_cpus=1))
        with ThreadPoolExecutor(1) as pool:
            result = pool.submit(work)
            for number in at:
                while done() < number:
                    assert not result.done(), f"it ended before a node could be killed: {result}"
                    time.sleep(0.01)
                self.kill()
            return result.result(timeout=120)

    def kill(self) -> None:
        """Kill a node with signal 9: its raylet and the workers below it."""
        node = self.others.pop()
        for one, *_ in node.all_processes.values():
            raylet = psutil.Process(one.process.pid)
            for process in [*raylet.children(recursive=True), raylet]:
                process.kill()
        self.cluster.worker_nodes.discard(node)

    def stop(self) -> None:
        ray.shutdown()
        self.cluster.shutdown()


@pytest.fixture(scope="module", autouse=True)
def _keep_print() -> Iterator[None]:
    """Ray replaces the built-in print for good, and what holds the original cannot be pickled then."""
    kept = builtins.print
    yield
    builtins.print = kept


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_worker_niceness", "0")  # not behind everything else on this machine
        patch.setenv("RAY_health_check_period_ms", "300")  # a killed node is noticed in 2 seconds instead of 15
        made = Nodes()
        yield made
        made.stop()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    folder, rng = tmp_path_factory.mktemp("ray"), np.random.default_rng(0)
    labels = rng.integers(K, size=N)
    features = (rng.normal(size=(K, D))[labels] + rng.normal(size=(N, D))).astype(np.float32)
    for number, own in enumerate(np.array_split(np.arange(N), 3)):
        flat = pa.FixedSizeListArray.from_arrays(pa.array(features[own].ravel()), D)
        table = pa.table({"features": flat, "label": labels[own], "id": own + 7})
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=1000)
    np.savez(folder / "head.npz", weight=rng.normal(size=(K, D)), bias=rng.normal(size=K))
    return open_source(folder, weight=folder / "head.npz")


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mohs.hardness.blocks.BLOCK_ROWS", 1000)


def test_a_table_survives_two_killed_nodes_and_nothing_is_done_twice(
    nodes: Nodes, source: Source, tmp_path: Path, small_blocks: None
) -> None:
    score_files(source, tmp_path / "one.parquet", neighbors=True, references=5000)
    done: dict[Path, int] = {}

    def markers() -> int:
        found = {file: file.stat().st_mtime_ns for file in tmp_path.glob("ray.parquet.parts-*/*.npz")}
        done.update({file: when for file, when in found.items() if file not in done})
        again = [file for file, when in found.items() if done[file] != when]
        assert not again
        return len(done)

    out = tmp_path / "ray.parquet"
    work = lambda: score_files(source, out, neighbors=True, references=5000, executor=RayTasks())
    scored = nodes.during(work, markers, (5, 25))
    assert scored.rows == N
    a, b = pq.read_table(tmp_path / "one.parquet"), pq.read_table(tmp_path / "ray.parquet")
    assert a.equals(b)
    assert b.column("id").to_pylist() == list(range(7, N + 7))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["one.parquet", "ray.parquet"]


def test_an_audit_of_files_is_that_of_one_process(nodes: Nodes, source: Source, tmp_path: Path, small_blocks: None) -> None:
    one = audit_files(source, tmp_path / "one", sample=500)
    other = audit_files(source, tmp_path / "ray", sample=500, executor=RayTasks())
    assert one.shares == other.shares
    for a, b in zip(sorted(one.table.iterdir()), sorted(other.table.iterdir()), strict=True):
        assert pq.read_table(a).equals(pq.read_table(b))


@pytest.mark.parametrize("several", [False, True])
def test_an_audit_in_memory_is_that_of_one_process(nodes: Nodes, tmp_path: Path, several: bool) -> None:
    """The models of a table by fold, the heads of several labels by label."""
    rng = np.random.default_rng(0)
    x, color = rng.normal(size=(150, 3)), rng.choice(["red", "green", "blue"], size=150)
    names = [";".join(n for n, v in zip("abc", row, strict=True) if v > 0) for row in x]
    labels = names if several else np.where(x[:, 0] + (color == "red") > 0, "up", "down").tolist()
    lines = [f"{a:.3f},{b:.3f},{c:.3f},{one},{label}" for (a, b, c), one, label in zip(x, color, labels, strict=True)]
    (tmp_path / "rows.csv").write_text("\n".join(["p,q,r,color,label", *lines]))
    how = {"open_as": {"separator": ";"} if several else {}, "issues": "none", "device": "cpu"}
    one = run_audit(tmp_path / "rows.csv", out=tmp_path / "one", **how)
    told: list[str] = []
    other = run_audit(tmp_path / "rows.csv", out=tmp_path / "ray", executor=RayTasks(), tell=told.append, **how)
    assert one.table.equals(other.table)
    assert one.estimate.rate == other.estimate.rate
    assert f"On the cluster: the {'heads, by label' if several else 'linear models and boosted trees, by fold'}." in told


def test_a_study_survives_a_killed_node(nodes: Nodes, tmp_path: Path, small_study: str) -> None:
    (tmp_path / "study.toml").write_text(small_study)
    recipe = read_recipe(tmp_path / "study.toml")
    one = run_study(recipe, runs=tmp_path / "one", device="cpu")
    told: list[dict[str, Any]] = []
    work = lambda: run_study(recipe, runs=tmp_path / "ray", device="cpu", on="ray", watch=told.append)
    other = nodes.during(work, lambda: len(list((tmp_path / "ray").glob("*/DONE"))), (1,))
    assert other == one
    assert [event["ended"] for event in told] == list(range(1, len(one) + 1))
    folders = [sorted(file.name for file in (tmp_path / where).iterdir()) for where in ("one", "ray")]
    assert folders[0] == folders[1]
    for file in (tmp_path / "one").glob("*/*.safetensors"):
        assert file.read_bytes() == (tmp_path / "ray" / file.relative_to(tmp_path / "one")).read_bytes()


def test_an_embedding_survives_a_killed_node(nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mohs.data.stream.BLOCK_ROWS", 4)
    monkeypatch.chdir(tmp_path)
    Path("layer.py").write_text(LAYER)
    rng = np.random.default_rng(0)
    for i in range(120):
        file = tmp_path / "photos" / "abc"[i % 3] / f"{i}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(256, size=(16, 16, 3), dtype=np.uint8)).save(file)
    opened = open_stream(tmp_path / "photos")
    one = embed_files(opened, tmp_path / "one", "layer:features", device="cpu")
    work = lambda: embed_files(opened, tmp_path / "ray", "layer:features", device="cpu", executor=RayTasks())
    other = nodes.during(work, lambda: len(list((tmp_path / "ray" / "parts").glob("*.npz"))), (2,))
    assert (other.rows, other.dimensions) == (one.rows, one.dimensions) == (120, 32)
    names = [file.name for file in sorted(one.folder.glob("*.parquet"))]
    assert names == [file.name for file in sorted(other.folder.glob("*.parquet"))]
    for name in names:
        assert pq.read_table(one.folder / name).equals(pq.read_table(other.folder / name))


def fails(item: int) -> int:
    if item == 3:
        raise DataError("item 3 is not as it should be")
    return item


def test_results_come_in_order_and_errors_as_they_were_raised(nodes: Nodes) -> None:
    with executor_on("ray") as executor:
        found = executor.map(fails, range(40))
        assert [next(found) for _ in range(3)] == [0, 1, 2]
        with pytest.raises(DataError, match="item 3 is not as it should be"):
            next(found)
    assert ray.is_initialized()  # it was before
    (told,) = _Actor(lambda: fails, range(4), str(Path.cwd()))({"number": [3]})["outcome"]
    assert isinstance(told.error, DataError)  # so does an actor send it
    with pytest.raises(ValueError, match="on must be local, ray or ray:ADDRESS, got 'dask'"), executor_on("dask"):
        pass
