"""`mohs score`: the hardness table of logits, or of features and a head, read from files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mohs.cli import shared_options as o

if TYPE_CHECKING:
    from mohs.hardness.score_files import Scored
    from mohs.hardness.shards import Source

DIGITS = "scikit-learn's digits, logistic regression fitted to the same rows"
EPILOG = """\b
DATA holds logits (N, K) and labels (N,), or features (N, D), labels (N,) and\na head: weight (K, D) and bias (K,).

\b
Examples:
  mohs score outputs.npz --out hardness.csv
  mohs score shards/ --weight head.npz --classes cat,dog,fish
  torchrun --nproc-per-node 4 -m mohs score shards/
  mohs score shards/ --on ray:auto              on a running Ray cluster"""


def score(
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA",
            help="File (.npz, .parquet), folder of .parquet or .npy files, or s3://, gs:// or hf:// address; default: digits.",
        ),
    ] = None,
    out: Annotated[
        str,
        typer.Option(metavar="FILE", help="Table file to write (.parquet or .csv), or an s3:// or gs:// address."),
    ] = "hardness.parquet",
    classes: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES", help="Class names in the order of the head's rows: a,b,c, or a file with one name per line."
        ),
    ] = None,
    weight: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Head of the features: .npz with weight (and bias), or .npy.")
    ] = None,
    neighbors: Annotated[
        bool, typer.Option("--neighbors", help="Add the share of nearest neighbors with the same label (needs features).")
    ] = False,
    human: Annotated[
        bool,
        typer.Option("--human", help="Add the share of people who would choose the label (for a model trained on votes)."),
    ] = False,
    on: o.On = "local",
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Write the hardness table of DATA: one row per example with its margin, loss, AVH and other scores."""
    from mohs._core.errors import DataError
    from mohs._core.executor import Torchrun, executor_on
    from mohs._core.remote import written_to
    from mohs.hardness.score_files import score_files
    from mohs.hardness.shards import open_source
    from mohs.hardness.table import check_table_path

    with _processes() as first, written_to(out) as file:
        check_table_path(file)
        try:
            source = _digits() if data is None else open_source(data, weight=weight)
            with executor_on(on, local=Torchrun()) as executor:
                scored = score_files(
                    source, file, classes=_names(classes, source), neighbors=neighbors, human=human, executor=executor
                )
        except DataError:
            if first:
                raise
            raise typer.Exit(3) from None  # the first process prints the error
    if first and as_json:
        typer.echo(json.dumps({**_plain(source, scored), "out": out}, ensure_ascii=False, default=str))
    elif first and not quiet:
        _print(source, scored)
        typer.echo(f"table: {out}")
    if first and scored.problem:
        raise DataError(scored.problem)


@contextmanager
def _processes() -> Iterator[bool]:
    """Join the other processes if torchrun started several; yields whether this is the first."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield True
        return
    from torch import distributed as dist

    dist.init_process_group("gloo")
    try:
        yield dist.get_rank() == 0
    finally:
        dist.destroy_process_group()


def _digits() -> Source:
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression

    from mohs.hardness.shards import array_source

    pixels, labels = load_digits(return_X_y=True)
    features = pixels / 16  # pixels from 0 to 1
    head = LogisticRegression(max_iter=200).fit(features, labels)
    arrays = {"features": features, "labels": labels, "weight": head.coef_, "bias": head.intercept_}
    return array_source(arrays, DIGITS)


def _names(given: str | None, source: Source) -> list[Any] | None:
    """The names of --classes; integers if the labels are integers."""
    if given is None:
        return None
    names = Path(given).read_text().splitlines() if Path(given).is_file() else given.split(",")
    names = [name.strip() for name in names if name.strip()]
    if source.whole_number_labels and all(name.lstrip("-").isdecimal() for name in names):
        return [int(name) for name in names]
    return list(names)


def _plain(source: Source, scored: Scored) -> dict[str, Any]:
    return {
        "data": source.name,
        "rows": scored.rows,
        "unscored": scored.unscored,
        "hardest": scored.hardest,
        "problem": scored.problem,
        "notes": scored.notes,
    }


def _print(source: Source, scored: Scored) -> None:
    typer.echo(f"{scored.rows:,} rows scored ({source.name})")
    typer.echo("hardest examples, by the margin (log-odds of the label):")
    typer.echo(f"    {'id':<16} {'label':<16} {'predicted':<16} {'margin':>8}")
    for row in scored.hardest:
        typer.echo(f"    {row['id']!s:<16} {row['label']!s:<16} {row['predicted']!s:<16} {row['margin']:>8.2f}")
    for note in scored.notes:
        typer.echo(f"note: {note}")
