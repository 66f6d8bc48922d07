"""`mohs train`: train a classifier with any loss; the run is reproducible and can be resumed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from mohs.cli import shared_options as o
from mohs.cli.progress import progress

if TYPE_CHECKING:
    from mohs.data.examples import Data, Examples
    from mohs.train.run import Run
    from mohs.train.trained import Trained

FEW_IMAGES, LEAST_SIDE = 10_000, 20  # pretrained features are recommended for at most this many images, of at least this side
EPILOG = """\b
Examples:
  mohs train photos/ --model resnet18 --epochs 30
  mohs train photos/ --embed auto --recipe robust
  mohs train reviews.csv --text review --recipe robust
  mohs train cifar10 --loss gce:q=0.7 --noise symmetric:rate=0.4 --dry-run
  mohs train cifar10 --votes cifar10n.npz:random1,random2,random3
  torchrun --nproc-per-node 4 -m mohs train cifar10 --batch 512"""


def train(
    data: o.DataWord = None,
    config: o.Config = None,
    embed: o.TrainEmbed = None,
    model: o.Model = None,
    head: o.Head = None,
    loss: o.Loss = None,
    regularizer: o.Regularizer = None,
    recipe: o.Recipe = None,
    noise: o.Noise = None,
    augment: o.Augment = None,
    optimizer: o.Optimizer = None,
    schedule: o.Schedule = None,
    class_weight: o.ClassWeight = None,
    epochs: o.Epochs = None,
    batch: o.Batch = None,
    accumulate: o.Accumulate = None,
    ema: o.Ema = None,
    precision: o.Precision = None,
    compiled: o.Compile = None,
    label: o.Label = None,
    group: o.Group = None,
    text: o.TextColumn = None,
    image_size: o.ImageSize = None,
    without: o.Without = None,
    votes: o.Votes = None,
    corrected: o.Corrected = None,
    seed: o.Seed = None,
    device: o.Device = "auto",
    graph: o.Graph = True,
    runs: o.Runs = Path("runs"),
    out: o.Out = None,
    tracker: o.Tracker = None,
    dry_run: o.DryRun = False,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Train a classifier on DATA. Run the same command again to resume; a finished run is only loaded."""
    from mohs.train.run import run_with

    run = run_with(
        config, data=data, embed=embed, model=model, head=head, loss=loss, regularizers=regularizer or None, recipe=recipe,
        noise=noise, augment=augmentations(augment), optimizer=optimizer, schedule=schedule, class_weight=class_weight,
        epochs=epochs, batch=batch, accumulate=accumulate, ema=ema, precision=precision, compile=compiled or None, seed=seed,
        open=open_options(
            label=label, text=text, group=group, image_size=image_size, without=without, votes=votes, corrected=corrected
        ),
    )  # fmt: skip
    found = found_data(run)
    if not quiet and first_process() and scratch_on_few(run, found.train):
        typer.echo(
            f"Training a network from scratch on {len(found.train):,} images. --embed auto trains on pretrained features, which "
            "is faster and usually more accurate on few images.",
            err=True,
        )
    if dry_run:
        return _print_plan(run, found, device, as_json=as_json)
    how = {"runs": runs, "out": out, "device": device, "graph": graph, "trackers": tuple(tracker or ())}
    done = _trained(run, found, how, quiet=quiet)
    return _print(done, as_json=as_json) if not quiet and first_process() else None


def _trained(run: Run, data: Data, how: dict[str, Any], *, quiet: bool) -> Trained:
    from mohs.train.loop import train as train_run

    finished = None

    def count(event: dict[str, Any]) -> None:
        nonlocal finished
        if "epoch" in event and "what" not in event:  # excluding the embedding
            finished = event["epoch"] if "step" in event else event["epoch"] + 1
        watch(event)

    try:
        with progress(quiet=quiet) as (_, watch):
            return train_run(run, data, watch=count, **how)
    except KeyboardInterrupt:
        if first_process():
            typer.echo(f"mohs: {_interrupted(finished, run.epochs)}", err=True)
        raise typer.Exit(130) from None


def _interrupted(finished: int | None, epochs: int) -> str:
    """Message after an interruption: what has been saved, and how to resume."""
    if finished is None:
        return "interrupted before training began; run the same command again"
    if not finished:
        return "interrupted before the end of the first epoch: nothing is kept; run the same command again to start over"
    return f"interrupted after {finished} of {epochs} epochs, which are kept: run the same command again to resume"


def first_process() -> bool:
    """Whether this is the process that prints, if torchrun started several."""
    from mohs._core.distributed import ranks

    return ranks()[0] == 0


def scratch_on_few(run: Run, examples: Examples) -> bool:
    """Whether the default network is trained from scratch on few images, which could be embedded."""
    from mohs.models import model_spec
    from mohs.models.efficientnet_lite import has_lite

    if examples.kind != "images" or run.embed is not None or model_spec(run.model)["name"] != "auto":
        return False
    return len(examples) <= FEW_IMAGES and min(examples.shape[1:]) >= LEAST_SIDE and has_lite("lite0")


def open_options(**options: Any) -> dict[str, Any] | None:
    """The options of `open_data` that were given, as `Run.open`; None if there are none."""
    return {name: value for name, value in options.items() if value is not None} or None


def augmentations(words: list[str] | None) -> list[str] | None:
    """`--augment` as `Run.augment`: "none" means no augmentation, an absent option the default."""
    return [word for word in words if word != "none"] if words else None


def found_data(run: Run) -> Data:
    """The run's data; the reader's notes and unreadable files are listed on stderr."""
    from mohs.train.run_data import opened

    found = opened(run)
    for note in found.train.notes:
        typer.echo(f"Note: {note}", err=True)
    lost = found.train.left_out
    for entry in lost[:5]:
        typer.echo(f"mohs: skipped {entry.path}: {entry.reason}", err=True)
    if lost:
        typer.echo(f"mohs: {len(lost):,} of {len(lost) + len(found.train):,} examples were skipped", err=True)
    return found


def _print_plan(run: Run, found: Data, device: str, *, as_json: bool) -> None:
    from dataclasses import asdict

    from mohs.train.build import build
    from mohs.train.estimate import estimate
    from mohs.train.resolve import resolve

    run, data, _ = resolve(run, found, device=device)
    job = build(run, data, device=device)
    cost = estimate(job)
    if as_json:
        typer.echo(json.dumps({"run": run.plain(), "estimate": asdict(cost), "device": str(job.device)}, default=str))
        return
    for name, value in run.plain().items():
        if value not in (None, [], {}):
            typer.echo(f"{name:<14} {json.dumps(value, ensure_ascii=False, default=str)}")
    sizes = ", ".join(f"{len(part):,} {name}" for name in ("train", "val", "test") if (part := getattr(data, name)) is not None)
    typer.echo(f"{'examples':<14} {sizes}; {len(data.classes)} classes; inputs {' × '.join(map(str, data.train.shape))}")
    typer.echo(f"{'network':<14} {cost.parameters:,} parameters on {job.device}")
    typer.echo(
        f"{'memory':<14} about {(cost.data_bytes + cost.training_bytes) / 1e6:,.0f} MB, {cost.data_bytes / 1e6:,.0f} of it data"
    )
    typer.echo(f"{'time':<14} about {cost.seconds:,.0f} s for {cost.steps:,} steps")


def _print(done: Trained, *, as_json: bool) -> None:
    last = done.history[-1] if done.history else {}
    if as_json:
        typer.echo(json.dumps({"folder": str(done.folder), "epochs": len(done.history), **last}))
        return
    accuracies = ", ".join(
        f"{word} {last[name]:.4f}"
        for name, word in (("accuracy", "training"), ("val_accuracy", "validation"), ("test_accuracy", "test"))
        if name in last
    )
    if done.run.embed is not None:
        typer.echo(f"features: {done.run.embed}")
    typer.echo(f"accuracy after {len(done.history)} epochs: {accuracies}")
    if done.run.recipe is not None:
        typer.echo("Accuracy is measured against the given labels: if a label is wrong, a right prediction counts as an error.")
    typer.echo(f"run: {done.folder}   (mohs predict {done.folder} NEW_DATA classifies new data)")
