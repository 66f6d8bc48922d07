"""`mohs compare`: two finished runs example by example, or losses and recipes trained with the same seeds and budget."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mohs.cli import shared_options as o
from mohs.cli.study import run_messages
from mohs.cli.train import augmentations, open_options

if TYPE_CHECKING:
    from mohs.studies.compare import SettingCompared
    from mohs.train.run import Run

USAGE = "give two run folders, or --loss at least twice or --recipe with at most one DATA"
DEMONSTRATION = ["cross_entropy", "gradient_rescaling"]  # compared without arguments, for five epochs
LOSSES_TO_BEAT = ["cross_entropy", "gce:q=0.7"]  # compared if only recipes are given: without and with a robust loss
ACCURACY = "accuracy on held-out examples in % (labels as given)"
EPILOG = """\b
Examples:
  mohs compare runs/A runs/B
  mohs compare cifar10 --loss cross_entropy --loss gce:q=0.7 --seeds 5
  mohs compare photos/ --embed auto --recipe robust --recipe robust-two --seeds 3"""


def compare(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN_A RUN_B | DATA", help="Two run folders or, with --loss or --recipe, the data."),
    ] = None,
    loss: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SPEC", help="Loss to compare (mohs list losses), such as gce:q=0.5. Repeatable; the first is the baseline."
        ),
    ] = None,
    recipe: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SPEC",
            help="Recipe to compare (mohs list robust), such as robust-two. Repeatable. Without --loss, the baselines are "
            "cross_entropy and gce:q=0.7.",
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(metavar="N", help="Number of seeds, the same for every setting.")] = 5,
    embed: o.TrainEmbed = None,
    model: o.Model = None,
    head: o.Head = None,
    regularizer: o.Regularizer = None,
    noise: o.Noise = None,
    augment: o.Augment = None,
    optimizer: o.Optimizer = None,
    schedule: o.Schedule = None,
    epochs: o.Epochs = None,
    batch: o.Batch = None,
    label: o.Label = None,
    group: o.Group = None,
    text: o.TextColumn = None,
    corrected: o.Corrected = None,
    image_size: o.ImageSize = None,
    without: o.Without = None,
    seed: o.Seed = None,
    device: o.Device = "auto",
    on: o.On = "local",
    runs: o.Runs = Path("runs"),
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Chart file to write (.svg or .png), for a comparison of settings.")
    ] = None,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Compare two finished runs on the examples both hold out, or train several losses and recipes on DATA and compare them."""
    given = words or []
    if out is not None:
        from mohs.report.charts import check_chart_path

        check_chart_path(out)
    if loss or recipe or not given:
        settings = settings_of(
            given, loss or (LOSSES_TO_BEAT if recipe else DEMONSTRATION), recipe or [],
            embed=embed, model=model, head=head, regularizers=regularizer or None, noise=noise, augment=augmentations(augment),
            optimizer=optimizer, schedule=schedule, batch=batch, seed=seed, epochs=epochs if loss or recipe else epochs or 5,
            open=open_options(label=label, text=text, group=group, image_size=image_size, without=without, corrected=corrected),
        )  # fmt: skip
        return _settings(settings, seeds=seeds, runs=runs, device=device, on=on, out=out, as_json=as_json, quiet=quiet)
    return _two_runs(given, out, seed or 0, as_json=as_json)


def settings_of(words: list[str], losses: list[str], recipes: list[str], **shared: Any) -> dict[str, Run]:
    """A run per loss and per recipe; all other settings are shared (None: the default)."""
    from mohs.train.run import RECIPE_EPOCHS, run_with

    if len(losses) + len(recipes) < 2 or len(words) > 1:
        raise ValueError(f"{USAGE}, got {len(losses)} loss(es), {len(recipes)} recipe(s) and {len(words)} argument(s)")
    for option, names in (("--loss", losses), ("--recipe", recipes)):
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise ValueError(f"{option} {twice[0]} is given twice")
    shared |= {"data": words[0] if words else None, "record": False}
    if recipes and shared.get("epochs") is None:
        shared["epochs"] = RECIPE_EPOCHS  # every run has the same budget
    made = {name: run_with(loss=name, **shared) for name in losses}
    return made | {name: run_with(recipe=name, **shared) for name in recipes}


def _settings(
    settings: dict[str, Run], *, seeds: int, runs: Path, device: str, on: str, out: Path | None, as_json: bool, quiet: bool
) -> None:
    from mohs.studies.compare import compare_settings

    watch = run_messages(quiet=quiet, name_study=False)
    found = compare_settings(settings, seeds=seeds, runs=runs, device=device, watch=watch, on=on)
    if as_json:
        typer.echo(json.dumps([_plain({**dataclasses.asdict(one), "n": one.n}) for one in found]))
    else:
        _print_table(found)
    if out is not None:
        from mohs.report.charts import comparison_chart, save_chart

        run = next(iter(settings.values()))
        save_chart(comparison_chart(found, title=f"{run.data}, {seeds} seed(s), {run.epochs} epochs", metric=ACCURACY), out)
        if not quiet:
            typer.echo(f"wrote {out}", err=True)


def _print_table(found: list[SettingCompared]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE, pad_edge=False, title=ACCURACY, title_justify="left")
    table.add_column("setting", overflow="fold", min_width=min(24, max(len(one.name) for one in found)))
    for head in ("mean ± SD (n)", f"vs {found[0].name} [95 %]", "p (Holm)"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    for one in found:
        mean = f"{100 * one.mean:.2f} ± {100 * one.sd:.2f} ({one.n})" if one.n > 1 else f"{100 * one.mean:.2f} ({one.n})"
        span = _span(one.difference_low, one.difference_high)
        gap = "" if math.isnan(one.difference) else f"{100 * one.difference:+.2f} {span}"
        same = " (the same difference with every seed: too few seeds to tell)" if math.isinf(one.difference_low) else ""
        word = one.verdict + same + (f" ({one.failed} run(s) failed)" if one.failed else "")
        table.add_row(one.name, mean if one.n else "failed", gap, "" if math.isnan(one.p) else f"{one.p:.2g}", word)
    Console().print(table)


def _two_runs(words: list[str], out: Path | None, seed: int, *, as_json: bool) -> None:
    from mohs.studies.compare import compare_runs

    if len(words) != 2:
        raise ValueError(f"{USAGE}, got {len(words)} argument(s) and no --loss or --recipe")
    if out is not None:
        raise ValueError("--out needs a comparison of settings (--loss, --recipe); two runs have no chart")
    a, b = map(Path, words)
    found = compare_runs(a, b, seed=seed)
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(found)))
        return
    typer.echo(f"on the {found.n:,} {found.on} examples that both runs held out:")
    typer.echo(f"    {100 * found.accuracy_a:6.2f} %  {a}")
    typer.echo(f"    {100 * found.accuracy_b:6.2f} %  {b}")
    typer.echo(f"difference {100 * found.difference:+.2f} points {_span(found.low, found.high)} (95 %, bootstrap over examples)")
    typer.echo(
        f"only the first is right on {found.only_a:,}, only the second on {found.only_b:,}; McNemar's exact p = {found.p:.2g}"
    )
    typer.echo("this compares two networks; to compare settings, use several seeds (mohs compare --loss ...)")


def _span(low: float, high: float) -> str:
    return f"[{100 * low:.2f}, {100 * high:.2f}]" if math.isfinite(low) else ""


def _plain(one: dict[str, Any]) -> dict[str, Any]:
    """The values for JSON, which has neither NaN nor infinity."""
    return {name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in one.items()}
