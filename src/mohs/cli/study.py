"""`mohs study`: run the tables of the papers, write their results and pages, and judge the papers' claims."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mohs.cli import shared_options as o

if TYPE_CHECKING:
    from mohs.studies.run_study import StudyEstimate
    from mohs.studies.study_page import StudySummary

EPILOG = """\b
Examples:
  mohs study recipes/gr/table3.toml           writes results/gr/table3.csv and .md
  mohs study recipes --scale smoke            quick test of every recipe
  mohs study recipes/gr --only CE --seeds 2   some rows, fewer seeds
  mohs study --claims                         judge all claims
  mohs study --figures                        draw figures of the papers"""


def study(
    recipes: Annotated[
        list[Path] | None, typer.Argument(metavar="RECIPE", help="Recipes (.toml), or folders of recipes.")
    ] = None,
    scale: Annotated[
        str, typer.Option(metavar="NAME", help="Size of the study: full, or smoke for a quick test of every part.")
    ] = "full",
    seeds: Annotated[int | None, typer.Option(metavar="N", help="Number of seeds per row; default: the recipe's own.")] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT", help="Rows to run: those whose label contains this text, and the rows they depend on. Repeatable."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Folder for results (.csv) and pages (.md); default: results, or RUNS/smoke at scale smoke."
        ),
    ] = None,
    runs: o.Runs = Path("runs"),
    device: o.Device = "auto",
    jobs: Annotated[int, typer.Option(metavar="N", help="Number of runs that train at once on a GPU.")] = 8,
    on: o.On = "local",
    claims: Annotated[bool, typer.Option("--claims", help="Judge all claims; write docs/claims.md and what-to-use.md.")] = False,
    figures: Annotated[
        bool, typer.Option("--figures", help="Draw figures of the papers into docs/images (needs the report extra).")
    ] = False,
    collect_only: Annotated[
        bool, typer.Option("--collect-only", help="Write results and pages from finished runs, without training.")
    ] = False,
    dry_run: o.DryRun = False,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Reproduce tables and figures of the papers. Run the same command again to resume."""
    if not recipes and not claims and not figures:
        raise ValueError("no study given: name a recipe (recipes/gr/table3.toml), a folder of recipes, --claims or --figures")
    from mohs._core.errors import DataError
    from mohs.studies.claims_page import write_claims_page
    from mohs.studies.collect import collect
    from mohs.studies.recipe import find_recipes, read_recipe, select_rows
    from mohs.studies.run_study import estimate_study, run_studies
    from mohs.studies.study_page import write_study_page

    home = out or (Path("results") if scale == "full" else runs / scale)
    found = [read_recipe(path, scale=scale, seeds=seeds) for path in find_recipes(recipes or [])]
    selected = [select_rows(recipe, only) if only else recipe for recipe in found]
    outcomes: list[StudyEstimate | StudySummary] = []

    def show(outcome: StudyEstimate | StudySummary) -> None:
        outcomes.append(outcome)
        if not as_json and not quiet:
            _print(outcome)

    if dry_run:
        for recipe in selected:
            show(estimate_study(recipe, runs=runs, device=device))
    elif collect_only:
        for recipe, part in zip(found, selected, strict=True):
            results = collect(part, runs=runs)
            if not results:
                raise DataError(f"{recipe.path}: no runs of this study in {runs}: run it without --collect-only")
            show(write_study_page(recipe, results, home))
    else:
        every = run_studies(selected, runs=runs, device=device, jobs=jobs, watch=run_messages(quiet=quiet), on=on)
        for recipe, results in zip(found, every, strict=True):
            show(write_study_page(recipe, results, home))
    if claims:
        page = write_claims_page()
        if not (quiet or as_json):
            typer.echo(f"wrote {page}")
    if figures:
        from mohs.report.paper_figures import draw_figures

        for file in draw_figures():
            if not (quiet or as_json):
                typer.echo(f"wrote {file}")
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(one) for one in outcomes], default=str, ensure_ascii=False))


def run_messages(*, quiet: bool = False, name_study: bool = True) -> Callable[[dict[str, Any]], None]:
    """A `watch` that prints a line on stderr whenever a run has ended."""

    def watch(event: dict[str, Any]) -> None:
        if quiet:
            return
        if "trained" in event:
            typer.echo(f"[{event['trained']}/{event['of']}] runs of all studies trained", err=True)
        if "ended" in event:
            outcome = f"failed: {event['error']}" if event["error"] else f"{event['seconds']:.1f} s"
            row = f"{event['study']}: {event['row']}" if name_study else event["row"]
            typer.echo(f"[{event['ended']}/{event['of']}] {row}, seed {event['seed']}: {outcome}", err=True)

    return watch


def _print(outcome: StudyEstimate | StudySummary) -> None:
    values = dataclasses.asdict(outcome)
    verdicts = values.pop("verdicts", {})
    if "measures" in values:
        values["measures"] = ", ".join(values["measures"])
        seconds = values.pop("seconds")
        values |= {} if seconds is None else {"time": f"about {seconds:,.0f} s, one run after another, without the measures"}
    for name, value in values.items():
        typer.echo(f"{name.replace('_', ' '):<10} {value}")
    for row, verdict in verdicts.items():
        typer.echo(f"    {verdict:<7} {row}")
    typer.echo()
