"""`mohs adapt`: a classifier for an unlabeled domain, by self-training from a labeled one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mohs.cli import shared_options as o
from mohs.cli.progress import progress
from mohs.cli.train import augmentations, open_options

if TYPE_CHECKING:
    from mohs.adapt.self_training import Adapted
    from mohs.data.examples import Data
    from mohs.train.run import Run

Source = Annotated[
    o.Text, typer.Option(metavar="DATA", help="Labeled data: folder, file or name, such as mnist; default: digits.")
]
Target = Annotated[
    str, typer.Option(metavar="DATA", help="Data of the new domain: folder, file or name, such as usps or mnist:invert.")
]
Select = Annotated[str, typer.Option(metavar="SPEC", help="Rule that selects pseudo-labels (mohs list selections).")]
Rounds = Annotated[int, typer.Option(metavar="N", help="Number of self-training rounds.")]
Share = Annotated[
    tuple[float, float, float],
    typer.Option(metavar="START STEP MAX", help="Share of pseudo-labeled target examples: first round, step, maximum."),
]
Again = Annotated[o.Number, typer.Option(metavar="N", help="Number of epochs per round after the first; default: --epochs.")]
Unlabeled = Annotated[
    bool, typer.Option("--unlabeled", help="Read the target without labels: a folder of images, or an .npz with x.")
]
Take = Annotated[
    str,
    typer.Option(metavar="NAME", help="Criterion for the final network: last, source_accuracy, target_entropy or target_avc."),
]
Folder = Annotated[
    Path | None, typer.Option("--out", metavar="FOLDER", help="Folder of the adaptation; default: a folder in adapted/.")
]
ONLY_SHOWN = 64
EPILOG = """\b
Examples:
  mohs adapt --source mnist --target usps
  mohs adapt --source photos/ --target new_photos/ --unlabeled --rounds 4"""


def adapt(
    source: Source = None,
    target: Target = "digits:rotate=20",
    selection: Select = "cbst_avh",
    rounds: Rounds = 6,
    portion: Share = (0.20, 0.05, 0.50),
    again_epochs: Again = None,
    unlabeled: Unlabeled = False,
    take: Take = "last",
    config: o.Config = None,
    model: o.Model = None,
    head: o.Head = None,
    loss: o.Loss = None,
    augment: o.Augment = None,
    optimizer: o.Optimizer = None,
    schedule: o.Schedule = None,
    epochs: o.Epochs = None,
    batch: o.Batch = None,
    precision: o.Precision = None,
    image_size: o.ImageSize = None,
    seed: o.Seed = None,
    device: o.Device = "auto",
    out: Folder = None,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Train on SOURCE, then self-train on TARGET with pseudo-labels; labels of TARGET are used for reporting only."""
    from mohs.train.run import run_with

    run = run_with(
        config, data=source, model=model, head=head, loss=loss, augment=augmentations(augment), optimizer=optimizer,
        schedule=schedule, epochs=epochs, batch=batch, precision=precision, seed=seed, open=open_options(image_size=image_size),
    )  # fmt: skip
    folder = out or Path("adapted") / _slug(f"{run.name()}-{target}-{selection}")
    again = {} if again_epochs is None else {"epochs": again_epochs}
    how = {"selection": selection, "rounds": rounds, "portion": portion, "again": again, "device": device}
    shown = {"take": take, "as_json": as_json, "quiet": quiet}
    _adapt(run, folder, target, how, shown, image_size=image_size, unlabeled=unlabeled)


def _adapt(run: Run, folder: Path, target: str, how: dict[str, Any], shown: dict[str, Any], **opening: Any) -> None:
    from mohs._core.validation import check_choice
    from mohs.adapt.rounds import CRITERIA
    from mohs.adapt.self_training import adapt as adapt_network

    check_choice("take", shown["take"], list(CRITERIA))
    source, new = _opened(run.data, target, seed=run.seed, **opening)
    with progress(quiet=shown["quiet"]) as (tell, watch):
        done = adapt_network(source.train, new.train, run=run, out=folder, test=new.test, watch=watch, tell=tell, **how)
    pictures = _only(done, new)
    if not shown["quiet"]:
        _print(done, shown["take"], pictures, as_json=shown["as_json"])


def _slug(text: str) -> str:
    return "".join(c if c.isalnum() or c in "._-=" else "_" for c in text)


def _opened(source: str, target: str, *, image_size: int | None, unlabeled: bool, seed: int) -> tuple[Data, Data]:
    from mohs.data.domains import open_domain, open_pair, paired
    from mohs.data.read_options import ARROW
    from mohs.data.unlabeled import open_unlabeled

    how: dict[str, Any] = {} if image_size is None else {"image_size": image_size}
    if not unlabeled:
        return open_pair(f"{source}{ARROW}{target}", seed=seed, **how)
    found = open_domain(source, seed=seed, **how)
    return paired(found, open_unlabeled(target, found.train))


def _only(done: Adapted, target: Data) -> Path | None:
    """A grid of the images that only the last round selected; None if there are none."""
    from mohs.report.image_grid import picture_grid

    number = len(done.rounds) - 1
    places, labels = done.only_here(number)
    if target.train.kind != "images" or not len(places):
        return None
    captions = [str(target.classes[k]) for k in labels[:ONLY_SHOWN].tolist()]
    picture_grid(target.train, places[:ONLY_SHOWN].tolist(), captions=captions).save(done.folder / "only-here.png")
    return done.folder / "only-here.png"


def _print(done: Adapted, take: str, shown: Path | None, *, as_json: bool) -> None:
    trained = done.take(take)
    if as_json:
        files = {"folder": done.folder, "table": done.folder / "target.parquet", "network": trained.folder, "pictures": shown}
        typer.echo(json.dumps({**files, "rounds": done.rounds}, default=str))
        return
    names = {"round": "round", "selected": "selected", "true": "right", "target_accuracy": "target", "source_accuracy": "source"}
    columns = {name: word for name, word in names.items() if any(line.get(name) is not None for line in done.rounds)}
    typer.echo("  ".join(f"{word:>8}" for word in columns.values()))
    for line in done.rounds:
        typer.echo("  ".join(_cell(line.get(name)) for name in columns))
    typer.echo(f"network: {trained.folder}")
    typer.echo(f"table:   {done.folder / 'target.parquet'}")
    if shown is not None:
        typer.echo(f"selected only by this rule: {shown}")


def _cell(value: Any) -> str:
    return f"{value:8.4f}" if isinstance(value, float) else f"{'' if value is None else value:>8}"
