"""Embed images or texts that need not fit in memory: each block of a stream becomes a Parquet part of features.

An executor gives the blocks to processes that each load the embedder once: this one, or the actors of a Ray cluster. Order, ids
and batches depend on the data alone, so the features do not depend on the number of processes. Memory holds two batches of images
and the features of PIECE_ROWS rows. The folder holds

    embed.json            the data and the embedder
    parts/                blocks that are done, moved up when all of them are
    00017.parquet         id, label, features and source of block 17; `mohs score` and `mohs audit --stream` read the folder
    skipped.csv           what could not be read, and why
    summary.json          number of rows, written last

The same call again resumes from the blocks that are done.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import torch
from PIL import Image

from mohs._core.checksums import read_json
from mohs._core.errors import DataError, RunError
from mohs._core.executor import Executor, Local
from mohs._core.files import written_whole
from mohs._core.folders import claimed, refuse_data_folder
from mohs._core.part_files import PartFile, Tally
from mohs._core.specs import safe_name
from mohs.data.decode import Header, Size, choose_size, formats, header, pixels, strictly, why
from mohs.data.examples import LeftOut
from mohs.data.image_stores import THREADS
from mohs.data.stream import Record, Stream
from mohs.embed.choose_embedder import create_embedder
from mohs.embed.embed_data import FORMAT, Progress, With, Worker
from mohs.embed.embedder import Embedder
from mohs.embed.text_embedders import FITTED
from mohs.embed.write_embedded import feature_column

MARK, SUMMARY, SKIPPED, PARTS = "embed.json", "summary.json", "skipped.csv", "parts"
PIECE_ROWS = 4096  # rows of features in memory, a row group of a part
SIZED = 1024  # images whose sizes determine the common size, if the embedder has none
MODE = "RGB"
Item = TypeVar("Item")
Origin = tuple[Any, Any, str]  # id, label and source of an example


@dataclass(frozen=True)
class EmbeddedFiles:
    """The result of `embed_files`.

    Attributes:
        folder: Folder of the Parquet parts.
        rows: Number of examples.
        skipped: Number of examples that could not be read; skipped.csv in the folder lists them.
        dimensions: Number of features.
        embedder: Name of the embedder.
        about: What the features are.
        seconds: Duration, without the work of an earlier call.
    """

    folder: Path
    rows: int
    skipped: int
    dimensions: int
    embedder: str
    about: str
    seconds: float = 0.0


def embed_files(
    stream: Stream,
    out: str | Path | None = None,
    with_: With = "auto",
    *,
    runs: str | Path = "runs",
    device: str = "auto",
    batch: int | None = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> EmbeddedFiles:
    """Turn images or texts into features, in Parquet files that `mohs score` and `mohs audit --stream` read.

    Args:
        stream: From `data.open_stream.open_stream`.
        out: Output folder; default: a folder under `runs` named after the data and the embedder. The same call again resumes
            there.
        with_: Embedder, as for `embed`.
        runs: Parent of the default output folder.
        device: "auto", "cpu" or "cuda".
        batch: Examples per call; default: depends on embedder and device.
        executor: What runs the blocks; default: this process.
        progress: Called with the numbers of blocks that are done and of all blocks.

    Returns:
        The folder and a description of its contents.
    """
    refuse_data_folder(out, stream.name)
    start, executor = time.monotonic(), executor or Local()
    gpu = executor.has_gpu(device)
    work = EmbedBlocks(stream, with_, "cuda" if gpu and device == "auto" else device, batch)
    facts = next(executor.map(describe, [work], gpu=gpu))
    words = (FORMAT, stream.fingerprint, stream.kind, len(stream.blocks), facts["name"], facts["version"], facts["batch"])
    key = hashlib.sha256(repr(words).encode()).hexdigest()[:8]
    name = f"embed-{safe_name(Path(stream.name).stem) or 'data'}-{key}"
    mark = {"embedding": key, "data": stream.name, "blocks": len(stream.blocks), **facts}
    with claimed(Path(runs) / name if out is None else out, MARK, mark, kind="embedding", key="embedding") as folder:
        if (folder / SUMMARY).exists():
            return _load(folder)
        work = replace(work, with_=facts["name"] if isinstance(with_, str) else with_, version=facts["version"])
        work = replace(work, size=common_size(stream, facts["size"]), fitted=fitted_to(stream) if facts["fitted"] else None)
        (folder / PARTS).mkdir(exist_ok=True)
        tallies = []
        load = replace(work, folder=folder / PARTS).load
        for tally in executor.map_loaded(load, range(len(stream.blocks)), gpu=gpu):
            tallies.append(tally)
            if progress is not None:
                progress(len(tallies), len(stream.blocks))
        rows, skipped = (int(sum(tally[name] for tally in tallies)) for name in ("rows", "skipped"))
        if not rows:
            first = next((tally["reasons"][0] for tally in tallies if len(tally["reasons"])), None)
            raise DataError(f"{stream.name}: no example could be read" + ("" if first is None else f" ({': '.join(first)})"))
        _write_skipped(folder / SKIPPED, (tuple(line) for tally in tallies for line in tally["reasons"]))
        for part in sorted((folder / PARTS).glob("*.parquet")):
            part.replace(folder / part.name)
        dimensions = int(max(tally["dimensions"] for tally in tallies))
        about = f"{facts['about']}, {dimensions:,} dimensions"
        done = EmbeddedFiles(folder, rows, skipped, dimensions, facts["name"], about, time.monotonic() - start)
        with written_whole(folder / SUMMARY) as file:
            file.write_text(json.dumps({**vars(done), "folder": "."}, indent=1) + "\n")
        shutil.rmtree(folder / PARTS)
        return done


@dataclass(frozen=True, eq=False)
class EmbedBlocks:
    """Everything that a process needs to embed blocks of a stream.

    Attributes:
        stream: The data.
        with_: The embedder.
        device: Where it runs.
        batch: Examples per call; None: the embedder's own number.
        version: Required version of the embedder; "" for any.
        size: (height, width) of all images.
        fitted: Texts that the embedder is fitted to.
        folder: Where the parts are.
    """

    stream: Stream
    with_: With
    device: str
    batch: int | None
    version: str = ""
    size: Size = (0, 0)
    fitted: list[str] | None = None
    folder: Path = Path()

    def embedder(self) -> Embedder:
        """The embedder, without its weights."""
        found = create_embedder(self.with_, kind=self.stream.kind, device=self.device)
        if self.version not in ("", found.version):
            raise RunError(f"{found.name}: version {found.version} here, {self.version} on the first machine: install the same")
        return found if self.batch is None else replace(found, batch=self.batch)

    def load(self) -> Callable[[int], Tally]:
        """The function that embeds a block into its part file and returns its tally."""
        worker = Worker(self.embedder(), self.fitted)
        return lambda number: self._part(worker, number)

    def _part(self, worker: Worker, number: int) -> Tally:
        part = PartFile(self.folder, number)
        done = part.tally()
        if done is not None:
            return done
        left_out: list[LeftOut] = []
        counts = {"rows": 0, "dimensions": 0}

        def counted() -> Iterator[pa.Table]:
            for table in self._tables(worker, number, left_out):
                counts["rows"] += len(table)
                counts["dimensions"] = table.schema.field("features").type.list_size
                yield table

        part.write(counted())
        lines = np.array([(one.path, one.reason) for one in left_out], dtype=str).reshape(-1, 2)
        tally = {**{name: np.array(value) for name, value in counts.items()}, "skipped": np.array(len(lines)), "reasons": lines}
        part.finish(tally)
        return tally

    def _tables(self, worker: Worker, number: int, left_out: list[LeftOut]) -> Iterator[pa.Table]:
        """The features of a block, PIECE_ROWS rows at a time; collects what is skipped."""
        records: list[Origin] = []  # without their contents, which would be far larger than the features
        features: list[np.ndarray[Any, Any]] = []
        read = self.stream.read(self.stream.blocks[number])
        for batch, inputs in _one_ahead(self._batches(read, worker.embedder.batch, left_out)):
            records += [(one.id, one.label, one.source) for one in batch]
            features.append(worker(inputs).numpy())
            if len(records) >= PIECE_ROWS:
                yield _table(records, features, self.stream.name)
                records, features = [], []
        if records:
            yield _table(records, features, self.stream.name)

    def _batches(
        self, read: Iterator[Record | LeftOut], rows: int, left_out: list[LeftOut]
    ) -> Iterator[tuple[list[Record], Any]]:
        """Batches of examples with what the embedder takes: texts, or images (B, 3, H, W)."""
        with ThreadPoolExecutor(THREADS) as pool, strictly():
            while found := list(islice(read, rows)):
                batch: list[Record] = []
                contents: list[Any] = []
                for one, content in zip(found, pool.map(self._content, found), strict=True):
                    if isinstance(one, LeftOut) or isinstance(content, LeftOut):
                        left_out.append(one if isinstance(one, LeftOut) else content)
                    else:
                        batch.append(one)
                        contents.append(content)
                if batch:
                    yield batch, contents if self.stream.kind == "text" else torch.from_numpy(np.stack(contents))

    def _content(self, record: Record | LeftOut) -> Any:
        """The text, or the pixels (3, H, W); LeftOut where they cannot be decoded."""
        if isinstance(record, LeftOut) or isinstance(record.content, str):
            return None if isinstance(record, LeftOut) else record.content
        try:
            with open_image(record.content) as image:
                return pixels(image, MODE, self.size)
        except Exception as error:  # decoders may raise any error; it is listed with the file's name
            size = len(record.content) if isinstance(record.content, bytes) else None
            return LeftOut(record.source, why(error, record.source, size))


def describe(work: EmbedBlocks) -> dict[str, Any]:
    """Describe the embedder on the machine where it runs."""
    found = work.embedder()
    fields = ("name", "about", "version", "size", "batch", "fitted")
    return {field: getattr(found, field) for field in fields}


def open_image(content: str | bytes | Path) -> Image.Image:
    """An image in a file, or in bytes."""
    return Image.open(io.BytesIO(content) if isinstance(content, bytes) else content, formats=formats())


def common_size(stream: Stream, side: int | None) -> Size:
    """(H, W) of all images: the embedder's, else chosen by the headers of images sampled evenly from the data."""
    if side is not None or stream.kind != "images":
        return (side or 0, side or 0)
    headers: list[Header] = []
    for record in stream.spread(SIZED):
        try:
            with strictly(), open_image(record.content) as image:
                headers.append(header(image))
        except Exception:  # listed when its block is read
            continue
    if not headers:
        raise DataError(f"{stream.name}: none of the first images of its blocks can be read")
    return choose_size(headers, None)[0]


def fitted_to(stream: Stream) -> list[str]:
    """The texts that an embedder is fitted to: FITTED of them, sampled evenly from the data."""
    return [str(record.content) for record in stream.spread(FITTED)]


def _table(records: Sequence[Origin], features: Sequence[np.ndarray[Any, Any]], name: str) -> pa.Table:
    ids, labels, sources = zip(*records, strict=True)
    try:
        columns = {"id": pa.array(ids), "label": pa.array(labels), "features": feature_column(np.concatenate(features))}
    except pa.ArrowException as error:
        raise DataError(f"{name}: ids or labels of several types, near {sources[0]}: use one type ({error})") from error
    return pa.table({**columns, "source": pa.array(sources)})


def _one_ahead(items: Iterator[Item]) -> Iterator[Item]:
    """The items; while one is used, a thread prepares the next."""
    with ThreadPoolExecutor(1) as reader:
        ahead = reader.submit(next, items, None)
        while (here := ahead.result()) is not None:
            ahead = reader.submit(next, items, None)
            yield here


def _write_skipped(path: Path, lines: Iterator[tuple[str, ...]]) -> None:
    with written_whole(path) as part, part.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("path", "reason")])
        csv.writer(file).writerows(lines)


def _load(folder: Path) -> EmbeddedFiles:
    words = read_json(folder / SUMMARY, lost="the number of rows is lost", repair="remove it and run the same command again")
    return EmbeddedFiles(**{**words, "folder": folder})
