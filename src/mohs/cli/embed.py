"""`mohs embed`: images or text to a file of features."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from mohs.cli import shared_options as o

EPILOG = """\b
Examples:
  mohs embed photos/ --out photos.npz
  mohs embed reviews.csv --text review --with tfidf --out reviews.parquet
  mohs embed photos/ --with timm:vit_base_patch14_dinov2.lvd142m --out photos.npz
  mohs audit photos.npz
  mohs embed photos/ --stream --out features/ --on ray:auto   larger than memory, on a Ray cluster
  mohs audit features/ --stream"""
With = Annotated[
    str,
    typer.Option(
        "--with",
        metavar="NAME",
        help="Embedder: auto (never downloads), lite0, timm:MODEL, torchvision:MODEL, hf:MODEL, minilm, text, wordllama, tfidf, "
        "or package.module:function. Options follow a comma: timm:MODEL,weights=FILE,size=224.",
    ),
]
Out = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Output file, .npz or .parquet; default: features.npz. With --stream a folder or an s3:// or gs:// address; "
        "default: a folder in runs.",
    ),
]
Stream = Annotated[
    bool,
    typer.Option(
        "--stream",
        help="Bounded memory: embed class folders of images, or WebDataset (.tar) or Parquet files, as they are read.",
    ),
]
Batch = Annotated[int | None, typer.Option(metavar="N", min=1, help="Batch size; default: depends on embedder and device.")]
Cache = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="Cache of features; default: MOHS_CACHE, or ~/.cache/mohs/embeddings.")
]


def embed(
    data: o.DataWord = None,
    with_: With = "auto",
    out: Out = None,
    label: o.Label = None,
    text: o.TextColumn = None,
    device: o.Device = "auto",
    batch: Batch = None,
    cache: Cache = None,
    stream: Stream = False,
    on: o.On = "local",
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Turn the images or texts of DATA into features, one vector per example, in a file that `mohs audit` reads.

    DATA may have no labels; the file then holds ids and features only.
    Features are cached; run the same command again to resume an interrupted one.
    """
    open_as: dict[str, Any] = {name: value for name, value in (("label", label), ("text", text)) if value is not None}
    how: dict[str, Any] = {"with_": with_, "device": device, "batch": batch}
    if on != "local" and not stream:
        raise ValueError("--on is for --stream: without it one process embeds everything")
    try:
        with _bar(quiet=quiet or as_json) as progress:
            if stream:
                facts, lines = _streamed(data, out, on, cache, open_as, progress=progress, **how)
            else:
                facts, lines = _in_memory(data, out or "features.npz", open_as, cache=cache or True, progress=progress, **how)
    except KeyboardInterrupt:
        typer.echo("mohs: interrupted; run the same command again to resume", err=True)
        raise typer.Exit(130) from None
    if as_json:
        typer.echo(json.dumps(facts, default=str))
    elif not quiet:
        for line in lines:
            typer.echo(line)


def _in_memory(data: str | None, out: str, open_as: dict[str, Any], **how: Any) -> tuple[dict[str, Any], list[str]]:
    """Embed data into a file; returns the facts and what to print."""
    from mohs.data.validate import first_left_out
    from mohs.embed.embed_data import embed as embed_data
    from mohs.embed.write_embedded import check_out, write_embedded

    check_out(out)
    found = embed_data(data, **how, **open_as)
    write_embedded(found.data, out)
    rows, left = sum(len(one) for one in found.data.splits.values()), found.data.left_out
    facts = {"out": out, "rows": rows, "skipped": len(left), "dimensions": found.train.shape[0], "embedder": found.embedder}
    skipped = [f"{len(left):,} left out ({first_left_out(left)})"] if left else []
    took = "from the cache" if found.cached else f"in {found.seconds:.0f} s"
    return {**facts, "cached": found.cached, "seconds": round(found.seconds, 2)}, [
        found.summary("--with"),
        f"{rows:,} examples {'' if found.data.classes else 'without labels '}{took}: {out}",
        *skipped,
    ]


def _streamed(
    data: str | None, out: str | None, on: str, cache: Path | None, open_as: dict[str, Any], **how: Any
) -> tuple[dict[str, Any], list[str]]:
    """Embed data as they are read into a folder; returns the facts and what to print."""
    from mohs._core.executor import executor_on
    from mohs._core.remote import is_remote, upload
    from mohs.data.open_stream import open_stream
    from mohs.embed.embed_files import embed_files
    from mohs.embed.write_embedded import ENDINGS

    if data is None:
        raise ValueError("--stream needs DATA: class folders of images, or .tar or .parquet files")
    if cache is not None:
        raise ValueError("--stream keeps what is done in its output folder: leave --cache out")
    if out is not None and out.lower().endswith(ENDINGS):
        raise ValueError(f"--stream writes a folder of Parquet files, not {out}: give a folder with --out")
    remote = out is not None and is_remote(out)
    with executor_on(on) as executor:
        done = embed_files(open_stream(data, **open_as), None if remote else out, executor=executor, **how)
    if remote:
        upload(done.folder, str(out))
    where = out if remote else done.folder
    facts = {"out": where, "rows": done.rows, "skipped": done.skipped, "dimensions": done.dimensions, "embedder": done.embedder}
    skipped = [f"{done.skipped:,} could not be read: {done.folder / 'skipped.csv'}"] if done.skipped else []
    return {**facts, "seconds": round(done.seconds, 2)}, [
        f"Features: {done.about}.",
        f"{done.rows:,} examples in {where}   (mohs audit {where} --stream judges them)",
        *skipped,
    ]


@contextmanager
def _bar(*, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on stderr if it is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("embedding"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
