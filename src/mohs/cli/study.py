"""`mohs study`: run the tables of the papers, write their results and pages, and settle the claims."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mohs.cli import shared_options as o

if TYPE_CHECKING:
    from mohs.studies.collect import Result
    from mohs.studies.recipe import Recipe

NOT_RUN = "not run"


def study(
    recipes: Annotated[
        list[Path] | None, typer.Argument(metavar="[RECIPE]...", help="Recipes, or folders of them, as recipes/gr/table3.toml.")
    ] = None,
    scale: Annotated[str, typer.Option(help="full, or smoke: a trial of every part of it in seconds.")] = "full",
    seeds: Annotated[int | None, typer.Option(help="How many seeds, in place of what the recipe says.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Rows whose label holds this text, and those they are against.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder for results (.csv) and pages (.md); default: results, of a trial RUNS/smoke.")
    ] = None,
    runs: o.Runs = Path("runs"),
    device: o.Device = "auto",
    jobs: Annotated[int, typer.Option(help="How many runs train at once on a GPU.")] = 8,
    claims: Annotated[bool, typer.Option("--claims", help="Check the register of claims and write docs/claims.md.")] = False,
    collect_only: Annotated[bool, typer.Option("--collect-only", help="Train nothing: write what the runs tell.")] = False,
    dry_run: o.DryRun = False,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Reproduce tables and figures of the papers. The same command again goes on where it was stopped."""
    if not recipes and not claims:
        raise ValueError("which study? Give a recipe (recipes/gr/table3.toml), a folder of them, or --claims")
    from mohs.studies.recipe import narrowed, read_recipe

    home = out or (Path("results") if scale == "full" else runs / scale)
    told: list[dict[str, Any]] = []
    found = [read_recipe(path, scale=scale, seeds=seeds) for path in found_recipes(recipes or [])]
    narrow = [narrowed(recipe, only) if only else recipe for recipe in found]
    how: dict[str, Any] = {"runs": runs, "device": device, "jobs": jobs, "collect_only": collect_only, "quiet": quiet}
    if not dry_run:
        _pooled(narrow, **how)
    for recipe, some in zip(found, narrow, strict=True):
        told.append(_planned(some, runs, device) if dry_run else _written(recipe, _results(some, **how), home))
        if not as_json and not quiet:
            _print(told[-1])
    if claims:
        _write_claims(quiet=quiet or as_json)
    if as_json:
        typer.echo(json.dumps(told, default=str, ensure_ascii=False))


def found_recipes(paths: list[Path]) -> list[Path]:
    """The recipes themselves; a folder stands for all below it."""
    made = []
    for path in paths:
        if not path.exists():
            raise ValueError(f"{path}: no such recipe or folder of recipes")
        found = sorted(path.rglob("*.toml")) if path.is_dir() else [path]
        if not found:
            raise ValueError(f"{path}: no recipe (.toml) below this folder")
        made += found
    return made


def _pooled(recipes: list[Recipe], *, runs: Path, device: str, jobs: int, collect_only: bool, quiet: bool) -> None:
    """On a GPU, what several studies need is trained together first; on a CPU each has its turn."""
    from mohs.studies.pool import train_pooled
    from mohs.studies.run_study import on_gpu

    def watch(event: dict[str, Any]) -> None:
        if "trained" in event and not quiet:
            typer.echo(f"{event['trained']} of {event['of']} runs trained", err=True)

    if len(recipes) > 1 and not collect_only and on_gpu(device):
        train_pooled(recipes, runs=runs, device=device, jobs=jobs, watch=watch)


def _results(recipe: Recipe, *, runs: Path, device: str, jobs: int, collect_only: bool, quiet: bool) -> list[Result]:
    if collect_only:
        from mohs._core.errors import DataError
        from mohs.studies.collect import collect

        results = collect(recipe, runs=runs)
        if not results:
            raise DataError(f"{recipe.path}: no runs of this study in {runs}: run it without --collect-only")
        return results
    from mohs.studies.run_study import run_study

    return run_study(recipe, runs=runs, device=device, jobs=jobs, watch=telling_ends(f"{recipe.study.id}: ", quiet=quiet))


def telling_ends(what: str = "", *, quiet: bool = False) -> Callable[[dict[str, Any]], None]:
    """What says on stderr that a run has ended."""

    def watch(event: dict[str, Any]) -> None:
        if "ended" in event and not quiet:
            end = f"failed: {event['error']}" if event["error"] else f"{event['seconds']:.1f} s"
            typer.echo(f"[{event['ended']}/{event['of']}] {what}{event['row']}, seed {event['seed']}: {end}", err=True)

    return watch


def _written(recipe: Recipe, results: list[Result], home: Path) -> dict[str, Any]:
    from mohs.studies.collect import joined, read_results, write_results
    from mohs.studies.study_page import report, verdicts
    from mohs.studies.trained_at_all import of_learned

    table, page = (home / f"{recipe.study.id}{ending}" for ending in (".csv", ".md"))
    results = joined(read_results(table) if table.exists() else [], results, recipe)
    write_results(results, table)
    page.write_text(report(recipe, results))
    failed = sum(bool(one.get("error")) for one in results)
    judged = verdicts(recipe, of_learned(results))
    beaten = [row for row in recipe.rows if row.against is not None]
    told = {f"{row.label} against {row.against}": judged[row.label].verdict if row.label in judged else NOT_RUN for row in beaten}
    return {
        "study": recipe.study.id,
        "runs": len(results),
        "failed": failed,
        "results": str(table),
        "page": str(page),
        "verdicts": told,
    }


def _print(told: dict[str, Any]) -> None:
    for name, value in told.items():
        if name != "verdicts":
            typer.echo(f"{name:<10} {value}")
    for row, verdict in told.get("verdicts", {}).items():
        typer.echo(f"    {verdict:<7} {row}")
    typer.echo()


def _planned(recipe: Recipe, runs: Path, device: str) -> dict[str, Any]:
    """What would be done, and for how long, by a trial of the first run that is not done."""
    from mohs.studies.notes import Notes
    from mohs.studies.plan import distinct, plan
    from mohs.train.build import build
    from mohs.train.directory import RunDirectory
    from mohs.train.estimate import estimate
    from mohs.train.run_data import opened, with_test
    from mohs.train.start import settled

    planned, noted = plan(recipe), Notes(runs, recipe.study.id).read()
    done = {key for key, entry in noted.items() if "folder" in entry and RunDirectory(runs / entry["folder"]).done}
    every = [one for one in distinct(planned) if not (one.trials and one.seed == 0)]  # these are one of their trials
    left = [one for one in every if one.key not in done]
    told: dict[str, Any] = {"study": recipe.study.id, "rows": len(recipe.rows), "seeds": recipe.study.seeds}
    told |= {"runs": len(every), "to train": len(left), "measures": ", ".join(one.name for one in recipe.measures)}
    if left:
        run = with_test(left[0].run)
        run, data, _ = settled(run, opened(run), device=device)
        cost = estimate(build(run, data, device=device))
        told["seconds"] = f"about {cost.seconds * len(left):,.0f}, one after another and without measuring"
    return told


def _write_claims(*, quiet: bool) -> None:
    from mohs.studies.claims_page import write_claims_page

    page = write_claims_page(Path.cwd())
    if not quiet:
        typer.echo(f"wrote {page.relative_to(Path.cwd())}")
