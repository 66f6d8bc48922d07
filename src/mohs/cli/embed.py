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
  mohs audit photos.npz"""
With = Annotated[
    str,
    typer.Option(
        "--with",
        metavar="NAME",
        help="Embedder: auto (never downloads), lite0, timm:MODEL, torchvision:MODEL, hf:MODEL, text, wordllama, tfidf, "
        "or package.module:function. Options follow a comma: timm:MODEL,weights=FILE,size=224.",
    ),
]
Out = Annotated[Path, typer.Option(metavar="FILE", help="Output file, .npz or .parquet.")]
Batch = Annotated[int | None, typer.Option(min=1, help="Examples per batch; default: by embedder and device.")]
Cache = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="Cache of features; default: MOHS_CACHE, or ~/.cache/mohs/embeddings.")
]


def embed(
    data: o.DataWord = None,
    with_: With = "auto",
    out: Out = Path("features.npz"),
    label: o.Label = None,
    text: o.TextColumn = None,
    device: o.Device = "auto",
    batch: Batch = None,
    cache: Cache = None,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Turn the images or texts of DATA into features, one vector per example, in a file that `mohs audit` reads.

    Features are cached; run the same command again to resume an interrupted one.
    """
    from mohs.embed.embed_data import embed as embed_data
    from mohs.embed.write_embedded import check_out, write_embedded

    check_out(out)
    open_as: dict[str, Any] = {name: value for name, value in (("label", label), ("text", text)) if value is not None}
    try:
        with _bar(quiet=quiet or as_json) as progress:
            found = embed_data(data, with_, device=device, batch=batch, cache=cache or True, progress=progress, **open_as)
    except KeyboardInterrupt:
        typer.echo("mohs: interrupted; run the same command again to resume", err=True)
        raise typer.Exit(130) from None
    write_embedded(found.data, out)
    rows = sum(len(one) for one in found.data.splits.values())
    if as_json:
        facts = {"out": out, "rows": rows, "dimensions": found.train.shape[0], "embedder": found.embedder}
        typer.echo(json.dumps({**facts, "cached": found.cached, "seconds": round(found.seconds, 2)}, default=str))
    elif not quiet:
        typer.echo(found.summary("--with"))
        typer.echo(f"{rows:,} examples {'from the cache' if found.cached else f'in {found.seconds:.0f} s'}: {out}")


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
