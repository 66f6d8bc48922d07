"""Time and memory of `mohs embed --stream` from 10⁴ to 10⁶ images: writes results/embed-stream.csv and embed-stream.md.

    python benchmarks/embed_stream.py --folder /tmp/embed-stream     some 5 GB of disk; about a quarter of an hour on one core

The images are JPEGs of 64 × 64 pixels in WebDataset files of 5,000. The embedder is a mean over pixels, so that the figures are
those of reading, decoding and writing. Every embedding runs in a process of its own with one thread; its peak memory is what the
operating system says. Seconds are those of the processor, so that other work on the machine does not count.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import resource
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

ROOT = Path(__file__).parents[1]
SIDE, SHARD, DIFFERENT = 64, 5_000, 500  # pixels, images in a file, images that differ


def make(folder: Path, rows: int) -> None:
    """Write WebDataset files of images of noise on ten colors."""
    folder.mkdir(parents=True)
    rng, encoded = np.random.default_rng(0), []
    for i in range(DIFFERENT):
        pixels = rng.integers(0, 100, size=(SIDE, SIDE, 3)) + np.array([15 * (i % 10), 100, 150 - 15 * (i % 10)])
        file = io.BytesIO()
        Image.fromarray(pixels.astype(np.uint8)).save(file, "JPEG")
        encoded.append(file.getvalue())
    for number, start in enumerate(range(0, rows, SHARD)):
        with tarfile.open(folder / f"{number:05}.tar", "w") as tar:
            for i in range(start, min(start + SHARD, rows)):
                for ending, held in (("jpg", encoded[i % DIFFERENT]), ("cls", str(i % 10).encode())):
                    member = tarfile.TarInfo(f"{i:09}.{ending}")
                    member.size = len(held)
                    tar.addfile(member, io.BytesIO(held))


def means(images: Any) -> Any:
    """The embedder: means over blocks of 8 × 8 pixels."""
    return images.float().unflatten(2, (8, 8)).unflatten(4, (8, 8)).mean((3, 5)).flatten(1)


def embedding(data: Path, out: Path) -> dict[str, float]:
    """Embed in this process; processor seconds and the peak memory."""
    import torch

    from mohs.data.open_stream import open_stream
    from mohs.embed.embed_files import embed_files

    torch.set_num_threads(1)
    before = time.process_time()
    done = embed_files(open_stream(data), out, means, device="cpu")
    gigabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    return {"rows": done.rows, "seconds": time.process_time() - before, "gigabytes": gigabytes}


def page(rows: list[dict[str, Any]], about: dict[str, str | int], command: str) -> str:
    """The results as a page."""
    shown = "\n".join(f"| {row['rows']:,} | {row['us']:.0f} | {row['gigabytes']:.2f} |" for row in rows)
    facts = ", ".join(f"{name} {value}" for name, value in about.items())
    return f"""# Embedding images larger than memory

`{command}`: {facts}.

`mohs embed --stream` on made images (JPEG, {SIDE} × {SIDE} pixels, WebDataset files of {SHARD:,}), one thread. The embedder is a
mean over pixels: the time is that of reading, decoding and writing, in microseconds of the processor for each image. Memory: the
peak of the process.

| images | µs/image | memory, GB |
|---|---|---|
{shown}

Time per image, {rows[-1]["rows"]:,} images over {rows[0]["rows"]:,}: {rows[-1]["us"] / rows[0]["us"]:.2f}.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("/tmp/embed-stream"), help="folder for the data, removed at the end")
    parser.add_argument("--rows", type=float, nargs="+", default=[1e4, 1e5, 1e6])
    parser.add_argument("--out", type=Path, default=ROOT / "results")
    parser.add_argument("--embed", nargs=2, type=Path, metavar=("DATA", "OUT"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.embed:
        print(json.dumps(embedding(*args.embed)))
        return
    from machine import machine, write_rows

    about, rows = machine(), []
    for count in map(int, args.rows):
        data, out = args.folder / f"data-{count}", args.folder / f"out-{count}"
        make(data, count)
        try:
            command = [sys.executable, __file__, "--embed", str(data), str(out)]
            one = {**os.environ, "OMP_NUM_THREADS": "1"}
            done = subprocess.run(command, check=True, capture_output=True, text=True, env=one)
            made = json.loads(done.stdout.splitlines()[-1])
            rows.append({**made, "us": 1e6 * made["seconds"] / made["rows"], "git": about["commit"]})
            print(rows[-1], flush=True)
        finally:
            shutil.rmtree(data)
            shutil.rmtree(out, ignore_errors=True)
    write_rows(rows, args.out / "embed-stream.csv")
    words = " ".join(["python benchmarks/embed_stream.py", *sys.argv[1:]])
    (args.out / "embed-stream.md").write_text(page(rows, about, words))


if __name__ == "__main__":
    main()
