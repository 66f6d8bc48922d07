"""`mohs predict`: the classes of new inputs by a finished run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mohs.cli import shared_options as o
from mohs.cli.progress import progress

if TYPE_CHECKING:
    import pyarrow as pa

    from mohs.data.examples import LeftOut

SHOWN = 10  # classes whose numbers are printed
EPILOG = """\b
Examples:
  mohs predict runs/photos new_photos/
  mohs predict runs/photos one.jpg another.jpg
  mohs predict runs/reviews new_reviews.csv --text review --out labels.csv"""


def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run of mohs train.")],
    data: Annotated[
        list[str],
        typer.Argument(
            metavar="DATA",
            help="New inputs: a folder or .zip of images, image files, a file of rows (.csv, .tsv, .jsonl, .parquet) with "
            "texts or paths of images, or .npz or .npy. Labels are not read.",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="Table file to write (.csv or .parquet): one row per input. Predictions of the same inputs are "
            "replaced, other files are not.",
        ),
    ] = Path("predictions.csv"),
    text: o.TextColumn = None,
    probs: Annotated[bool, typer.Option("--probs", help="Add one column per class with its probability.")] = False,
    device: o.Device = "auto",
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Predict the classes of new inputs by a trained classifier."""
    from mohs._core.watch import counting
    from mohs.hardness.table import check_table_path, write_table
    from mohs.train.classify import check_predictions_path, new_inputs
    from mohs.train.trained import load_run

    check_table_path(out)
    trained = load_run(run)
    given = data[0] if len(data) == 1 else _image_paths(data)
    examples = new_inputs(trained.run, trained.folder, trained.classes, given, text=text)
    check_predictions_path(out, examples)
    with progress(quiet=quiet or as_json) as (_, watch):
        table = trained.predict(examples, probs=probs, device=device, progress=counting(watch, "embedding"))
    write_table(table, out)
    if as_json:
        left = [{"path": one.path, "reason": one.reason} for one in examples.left_out]
        counts = _counts(table)
        typer.echo(json.dumps({"out": str(out), "rows": sum(counts.values()), "classes": counts, "left_out": left}))
    elif not quiet:
        _print(table, examples.left_out, out)


def _image_paths(words: Sequence[str]) -> list[Path]:
    """Several files as paths; raises unless all are image files."""
    from mohs._core.errors import DataError
    from mohs.data.decode import is_image_name

    for word in words:
        if not Path(word).is_file():
            raise DataError(f"{word}: no such file")
        if not is_image_name(word):
            raise DataError(f"{word}: several inputs must be image files; give one folder, .zip or file of rows at a time")
    return [Path(word) for word in words]


def _counts(table: pa.Table) -> dict[str, int]:
    counts = Counter(table.column("predicted").to_pylist()).most_common()
    return {str(name): count for name, count in counts if name is not None}


def _print(table: pa.Table, left_out: Sequence[LeftOut], out: Path) -> None:
    from mohs.data.validate import first_left_out

    counts = _counts(table)
    shown = ", ".join(f"{name} {count:,}" for name, count in list(counts.items())[:SHOWN])
    more = f", and {len(counts) - SHOWN} more classes" if len(counts) > SHOWN else ""
    typer.echo(f"{sum(counts.values()):,} predictions: {shown}{more}")
    if left_out:
        typer.echo(f"{len(left_out):,} left out ({first_left_out(left_out)})")
    typer.echo(f"table: {out}")
