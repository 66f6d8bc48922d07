"""Embedding of data that need not fit in memory: the features of `embed`, whatever the blocks, and after a kill."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from mohs._core.errors import DataError, RunError
from mohs.cli import app
from mohs.data import stream
from mohs.data.open_stream import open_stream
from mohs.embed.embed_data import embed
from mohs.embed.embed_files import embed_files
from mohs.hardness.shards import open_source

N, SIDE = 60, 12
CLASSES = ("ant", "bee", "cat")
rng = np.random.default_rng(0)
PIXELS = rng.integers(0, 120, size=(N, SIDE, SIDE, 3), dtype=np.uint8)
PIXELS[np.arange(N), :, :, np.arange(N) % 3] += 120  # red, green and blue
LABELS = [CLASSES[i % 3] for i in range(N)]


def means(images: Any) -> Any:
    """An embedder: the mean and SD of each color."""
    x = images.float()
    return np.concatenate([x.mean((2, 3)).numpy(), x.std((2, 3)).numpy()], 1)


def encoded(i: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(PIXELS[i]).save(file, "PNG")
    return file.getvalue()


def class_folders(root: Path) -> Path:
    for i, label in enumerate(LABELS):
        (root / label).mkdir(parents=True, exist_ok=True)
        (root / label / f"{i:03}.png").write_bytes(encoded(i))
    return root


def tars(root: Path) -> Path:
    root.mkdir()
    for number, own in enumerate(np.array_split(np.arange(N), 3)):
        with tarfile.open(root / f"{number}.tar", "w") as tar:
            for i in own.tolist():
                label = ("cls", LABELS[i].encode()) if i % 2 else ("json", json.dumps({"label": LABELS[i]}).encode())
                for ending, held in (("png", encoded(i)), label):
                    member = tarfile.TarInfo(f"{i:03}.{ending}")
                    member.size = len(held)
                    tar.addfile(member, io.BytesIO(held))
    return root


def shards(root: Path) -> Path:
    root.mkdir()
    for number, own in enumerate(np.array_split(np.arange(N), 3)):
        records = [{"bytes": encoded(i), "path": f"{i}.png"} for i in own.tolist()]
        table = pa.table({"image": records, "label": [LABELS[i] for i in own], "key": [f"k{i}" for i in own]})
        pq.write_table(table, root / f"{number}.parquet", row_group_size=7)
    return root


def table_of(folder: Path) -> pa.Table:
    return pa.concat_tables([pq.read_table(file) for file in sorted(folder.glob("*.parquet"))])


def features_of(table: pa.Table) -> np.ndarray[Any, Any]:
    return np.array(table.column("features").to_pylist(), np.float32)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "BLOCK_ROWS", 8)


@pytest.mark.parametrize("write", [class_folders, tars, shards])
def test_features_labels_and_ids_of_all_formats(write: Any, tmp_path: Path, small_blocks: None) -> None:
    opened = open_stream(write(tmp_path / "data"))
    done = embed_files(opened, tmp_path / "out", means, batch=5)
    table = table_of(done.folder)
    order = sorted(range(N), key=lambda i: (i % 3, i)) if write is class_folders else range(N)
    assert table.column("label").to_pylist() == [LABELS[i] for i in order]
    named = {class_folders: lambda i: f"{LABELS[i]}/{i:03}.png", shards: lambda i: f"k{i}"}
    named[tars] = lambda i: f"{i // 20}.tar/{i:03}"
    assert table.column("id").to_pylist() == [named[write](i) for i in order]
    expected = means(torch.from_numpy(PIXELS[list(order)]).permute(0, 3, 1, 2))
    np.testing.assert_allclose(features_of(table), expected, rtol=1e-5)
    assert (done.rows, done.skipped, done.dimensions) == (N, 0, 6)
    assert len(list(done.folder.glob("*.parquet"))) == len(opened.blocks) > 2
    assert not (done.folder / "parts").exists()
    assert embed_files(opened, tmp_path / "out", means, batch=5) == done


def test_a_network_gives_the_features_that_it_gives_in_memory(tmp_path: Path) -> None:
    folder = class_folders(tmp_path / "data")
    done = embed_files(open_stream(folder), tmp_path / "out", "lite0:size=32", device="cpu")
    known = embed(folder, "lite0:size=32", device="cpu", cache=False, memory_limit=0)
    table = table_of(done.folder)
    np.testing.assert_allclose(features_of(table), known.features, atol=1e-4)
    assert table.column("id").to_pylist() == known.train.keys


def test_text_is_fitted_to_a_sample(tmp_path: Path, small_blocks: None) -> None:
    texts = [f"{'good' if i % 2 else 'bad boring'} film number {i}" for i in range(40)]
    rows = pa.table({"review": texts, "label": ["np"[i % 2] for i in range(40)]})
    pq.write_table(rows, tmp_path / "t.parquet", row_group_size=5)
    done = embed_files(open_stream(tmp_path / "t.parquet"), tmp_path / "out", "tfidf")
    table = table_of(done.folder)
    assert table.column("id").to_pylist() == list(range(40))
    features = features_of(table)
    good, bad = features[1::2].mean(0), features[::2].mean(0)
    assert np.linalg.norm(good - bad) > 0.5


def test_what_cannot_be_read_is_listed(tmp_path: Path, small_blocks: None) -> None:
    folder = class_folders(tmp_path / "data")
    (folder / "bee" / "notes.txt").write_text("not an image")
    done = embed_files(open_stream(folder), tmp_path / "out", means)
    assert (done.rows, done.skipped) == (N, 1)
    assert (done.folder / "skipped.csv").read_text().splitlines()[1].startswith(f"{folder}/bee/notes.txt,not an image")
    empty = tmp_path / "empty"
    for label in "ab":
        (empty / label).mkdir(parents=True)
        (empty / label / "x.png").write_bytes(b"")
    with pytest.raises(DataError, match="none of the first images"):
        embed_files(open_stream(empty), tmp_path / "none", means)


def test_layouts_that_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file or folder"):
        open_stream(tmp_path / "nothing")
    for split in ("train", "test"):
        class_folders(tmp_path / "data" / split)
    with pytest.raises(DataError, match="has the splits test, train: stream one of them"):
        open_stream(tmp_path / "data")
    opened = open_stream(tmp_path / "data" / "train")
    (tmp_path / "data" / "train" / "ant" / "new.png").write_bytes(encoded(0))
    with pytest.raises(DataError, match="holds 21 files, 20 when the command started"):
        embed_files(opened, tmp_path / "out", means)
    (tmp_path / "cut.tar").write_bytes(tars(tmp_path / "tars").joinpath("0.tar").read_bytes()[:3000])
    with pytest.raises(DataError, match=r"cannot be read as a \.tar file"):
        list((cut := open_stream(tmp_path / "cut.tar")).read(cut.blocks[0]))


MODULE = """
import os
from pathlib import Path
calls = []
def means(images):
    calls.append(len(images))
    if Path("die").exists() and len(calls) > 5:
        os.kill(os.getpid(), 9)
    return images.float().mean((2, 3))
"""
KILLED = """
import sys
from mohs.data import stream
from mohs.data.open_stream import open_stream
from mohs.embed.embed_files import embed_files
stream.BLOCK_ROWS = 8
embed_files(open_stream("data"), "out", "dying_means:means", batch=4)
"""


def test_a_killed_embedding_resumes(tmp_path: Path, small_blocks: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    class_folders(Path("data"))
    Path("dying_means.py").write_text(MODULE)
    Path("die").touch()
    assert subprocess.run([sys.executable, "-c", KILLED], check=False).returncode == -9
    assert sorted(file.name for file in Path("out/parts").glob("*.npz")) == ["00000.npz", "00001.npz"]
    with pytest.raises(DataError, match=r"holds no \.parquet files"):  # an unfinished folder is not taken for a finished one
        open_source("out", headless=True)
    Path("die").unlink()
    opened = open_stream("data")
    done = embed_files(opened, "out", "dying_means:means", batch=4)
    assert sum(sys.modules["dying_means"].calls) == N - 16
    straight = embed_files(opened, "straight", "dying_means:means", batch=4)
    assert table_of(done.folder).equals(table_of(straight.folder))
    with pytest.raises(RunError, match="holds another embedding"):
        embed_files(opened, "out", "dying_means:means", batch=5)


def test_from_images_to_verdicts_by_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of images, some in the wrong class folder, embedded and audited without ever being in memory."""
    monkeypatch.chdir(tmp_path)
    Path("colors.py").write_text("def means(images):\n    return images.float().mean((2, 3))\n")
    folder = class_folders(tmp_path / "photos")
    moved = [(folder / LABELS[i] / f"{i:03}.png", folder / CLASSES[(i + 1) % 3] / f"{i:03}.png") for i in (4, 30)]
    for old, new in moved:
        old.rename(new)
    words = ["embed", str(folder), "--stream", "--with", "colors:means", "--out", str(tmp_path / "features"), "--device", "cpu"]
    shown = CliRunner().invoke(app, words)
    assert shown.exit_code == 0, shown.output
    assert f"60 examples in {tmp_path / 'features'}" in shown.output
    again = CliRunner().invoke(app, [*words, "--json"])
    assert json.loads(again.stdout)["rows"] == N
    shown = CliRunner().invoke(app, ["audit", str(tmp_path / "features"), "--stream", "--out", str(tmp_path / "audit")])
    assert shown.exit_code == 0, shown.output
    table = table_of(tmp_path / "audit" / "hardness")
    worst = table.sort_by([("p_mislabeled", "descending")]).column("id").to_pylist()[:2]
    assert set(worst) == {"bee/030.png", "cat/004.png"}
    np.savez(tmp_path / "head.npz", weight=np.eye(3))
    words = ["score", str(tmp_path / "features"), "--weight", str(tmp_path / "head.npz"), "--out", str(tmp_path / "h.parquet")]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert pq.read_table(tmp_path / "h.parquet").column("id").equals(table.column("id"))


def test_options_that_do_not_fit(tmp_path: Path) -> None:
    refused = CliRunner().invoke(app, ["embed", "photos/", "--on", "ray"])
    assert "--on is for --stream" in str(refused.exception)
    refused = CliRunner().invoke(app, ["embed", "photos/", "--stream", "--out", "features.npz"])
    assert "--stream writes a folder" in str(refused.exception)
