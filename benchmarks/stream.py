"""Time and memory of `audit_files` from 10⁵ to 10⁷ embeddings: writes results/stream.csv and stream.md.

    python benchmarks/stream.py --folder /tmp/stream       some 10 GB of disk; about half an hour on one core
    python benchmarks/stream.py --rows 1e6 --on local ray  what Ray costs on one machine: adds results/stream-ray.csv and .md

The embeddings are made: K = 100 classes, D = 64, 5 % of the labels moved to another class, in Parquet shards. Every audit runs
in a process of its own with one thread; its peak memory is what the operating system says. Seconds are those of the processor,
summed over this process and those that Ray starts, so that other work on the machine does not count.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).parents[1]
DIM, CLASSES, NOISE = 64, 100, 0.05
ONE_THREAD = {"OMP_NUM_THREADS": "1", "RAY_worker_niceness": "0"}
SHARD, GROUP = 524_288, 65_536  # rows
SPREAD = 0.45  # of the class means, in units of the noise: a good judge errs on about a tenth of the rows


def make(folder: Path, rows: int) -> None:
    """Write shards of made embeddings, with the true classes beside the labels."""
    folder.mkdir(parents=True)
    means = SPREAD * np.random.default_rng(0).standard_normal((CLASSES, DIM), dtype=np.float32)
    for number, start in enumerate(range(0, rows, SHARD)):
        rng, count = np.random.default_rng([1, number]), min(SHARD, rows - start)
        truth = rng.integers(CLASSES, size=count)
        features = means[truth] + rng.standard_normal((count, DIM), dtype=np.float32)
        given = np.where(rng.random(count) < NOISE, (truth + rng.integers(1, CLASSES, size=count)) % CLASSES, truth)
        flat = pa.FixedSizeListArray.from_arrays(pa.array(features.ravel()), DIM)
        table = pa.table({"features": flat, "label": given, "truth": truth})
        pq.write_table(table, folder / f"{number:05}.parquet", row_group_size=GROUP, compression="none")


def audit(data: Path, out: Path, on: str) -> dict[str, float]:
    """Audit in this process; processor seconds of each step, and the peak memory."""
    import torch

    from mohs._core.executor import executor_on
    from mohs.audit.audit_files import audit_files
    from mohs.hardness.shards import open_source

    torch.set_num_threads(1)
    marks: list[tuple[float, float]] = []
    with executor_on(on) as executor:
        source = open_source(data, headless=True)
        tell = lambda text: marks.append((processor_seconds(), time.perf_counter()))
        audit_files(source, out, executor=executor, tell=tell)
        tell("end")
    steps = ("labels", "judge", "score", "verdict")
    cpu = {step: marks[i + 1][0] - marks[i][0] for i, step in enumerate(steps)}
    wall = {f"{step} wall": marks[i + 1][1] - marks[i][1] for i, step in enumerate(steps)}
    return {**cpu, **wall, "gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9}


def processor_seconds() -> float:
    """Seconds of the processor that this process and all processes below it have used."""
    import psutil

    this = psutil.Process()
    return sum(sum(one.cpu_times()[:2]) for one in (this, *this.children(recursive=True)))


def found(data: Path, out: Path) -> dict[str, float]:
    """Of the flagged rows, the share whose label is wrong; of the wrong labels, the share that is flagged."""
    flagged = wrong = both = 0
    parts = iter(sorted((out / "hardness").glob("*.parquet")))
    held = np.empty(0, bool)
    for file in sorted(data.glob("*.parquet")):
        table = pq.read_table(file, columns=["label", "truth"])
        bad = table.column("label").to_numpy() != table.column("truth").to_numpy()
        while len(held) < len(bad):
            verdicts = pq.read_table(next(parts), columns=["verdict"]).column("verdict").to_numpy(zero_copy_only=False)
            held = np.concatenate([held, verdicts == "mislabeled"])
        own, held = held[: len(bad)], held[len(bad) :]
        flagged, wrong, both = flagged + own.sum(), wrong + bad.sum(), both + (own & bad).sum()
    return {"precision": both / flagged, "recall": both / wrong}


def child(data: Path, out: Path, on: str) -> dict[str, float]:
    """Run `audit` in a process of its own."""
    command = [sys.executable, __file__, "--audit", str(data), str(out), on]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, **ONE_THREAD})
    return json.loads(done.stdout.splitlines()[-1])


ABOUT = f"""Made embeddings: {DIM} features, {CLASSES} classes, {NOISE:.0%} of the labels wrong; one thread. Labels, judge:
processor seconds in all; the judge is fitted to 50,000 rows whatever their number. Score and verdict: microseconds of the
processor for each row. Memory: the peak of the process. Precision and recall: of the rows called mislabeled."""


def page(rows: list[dict[str, Any]], about: dict[str, str | int], command: str) -> str:
    """The results as a page."""
    shown = [
        f"| {row['on']} | {row['rows']:,} | {row['labels']:.1f} | {row['judge']:.1f} | {row['score us']:.1f} "
        f"| {row['verdict us']:.1f} | {row['gigabytes']:.2f} | {row['precision']:.3f} | {row['recall']:.3f} |"
        for row in rows
    ]
    each = [row["score us"] + row["verdict us"] for row in rows]
    facts = ", ".join(f"{name} {value}" for name, value in about.items())
    last, first = (f"{rows[i]['rows']:,} rows on {rows[i]['on']}" for i in (-1, 0))
    return f"""# Audits larger than memory

`{command}`: {facts}.

{ABOUT}

| on | rows | labels, s | judge, s | score, µs/row | verdict, µs/row | memory, GB | precision | recall |
|---|---|---|---|---|---|---|---|---|
{chr(10).join(shown)}

Time per row of the passes over the data, {last} to {first}: {each[-1] / each[0]:.2f}.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("/tmp/stream"), help="folder for the data, removed at the end")
    parser.add_argument("--rows", type=float, nargs="+", default=[1e5, 1e6, 1e7])
    parser.add_argument("--on", nargs="+", default=["local"], help="local, ray or both")
    parser.add_argument("--out", type=Path, default=ROOT / "results")
    parser.add_argument("--audit", nargs=3, metavar=("DATA", "OUT", "ON"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.audit:
        print(json.dumps(audit(Path(args.audit[0]), Path(args.audit[1]), args.audit[2])))
        return
    from machine import machine, write_rows

    about, rows = machine(), []
    for count in map(int, args.rows):
        data, out = args.folder / f"data-{count}", args.folder / f"out-{count}"
        make(data, count)
        try:
            for on in args.on:
                made = child(data, out, on)
                made |= {f"{step} us": 1e6 * made[step] / count for step in ("score", "verdict")}
                rows.append({"on": on, "rows": count, **made, **found(data, out), "git": about["commit"]})
                print(rows[-1], flush=True)
                shutil.rmtree(out)
        finally:
            shutil.rmtree(data)
            shutil.rmtree(out, ignore_errors=True)
    name = "stream" if args.on == ["local"] else "stream-ray"
    write_rows(rows, args.out / f"{name}.csv")
    words = " ".join(["python benchmarks/stream.py", *sys.argv[1:]])
    (args.out / f"{name}.md").write_text(page(rows, about, words))


if __name__ == "__main__":
    main()
