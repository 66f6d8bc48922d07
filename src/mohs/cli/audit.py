"""`mohs audit`: from data to a verdict on every example, a table and a report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mohs.cli import shared_options as o
from mohs.cli.progress import progress

if TYPE_CHECKING:
    from mohs.audit.gate import Gate
    from mohs.audit.result import AuditResult

EPILOG = """\b
Examples:
  mohs audit photos/                            images, one subfolder per class
  mohs audit reviews.csv --text review          texts in a column
  mohs audit flowers.csv --label species        a table
  mohs audit scans/ --group 'patient[0-9]+'     images of a patient stay in one fold
  mohs audit films.csv --label genres --separator ,   several labels per example
  mohs audit houses.csv --target price          a regression target
  mohs audit photos/ --votes votes.csv          labels from several annotators
  mohs audit --previous runs/flowers --checked decisions.csv   calibrate by labels that you have checked
  mohs audit --corrected labels.csv --previous runs/photos   audit corrected labels, and report the changes
  mohs audit photos/ --gate "mislabeled<0.02"   for continuous integration
  mohs audit shards/ --stream                   embeddings larger than memory
  mohs audit photos/ --gate "leak<=0"           no copies in another split"""
NAMES = ("easy", "hard", "ambiguous", "mislabeled", "cannot_tell", "not_judged", "noise")  # gates may bound these, and issues
Loss = Annotated[
    str,
    typer.Option(
        metavar="SPEC", help="Loss of --embed none and --finetune; auto: cross-entropy with early-learning regularization."
    ),
]
Recipe = Annotated[
    str,
    typer.Option(
        metavar="SPEC",
        help="Robust training with --embed none: robust, robust-two or none; auto: robust for 20,000 images and more on a GPU.",
    ),
]
Epochs = Annotated[
    int | None, typer.Option(metavar="N", help="Number of training epochs; default: depends on the size of the data.")
]
Batch = Annotated[int | None, typer.Option(metavar="N", help="Batch size; default: depends on the size of the data.")]
Folds = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Number of cross-validation folds (embeddings and tables); default: 10 for up to 2,000 examples, else 5.",
    ),
]
GateWord = Annotated[
    list[str] | None,
    typer.Option("--gate", metavar="CONDITION", help="Condition, such as mislabeled<0.02; exit with 1 if it fails. Repeatable."),
]
IssueNames = Annotated[
    str,
    typer.Option(
        "--issues", metavar="NAMES", help="Issues besides labels: auto, none, or comma-separated names (mohs list issues)."
    ),
]
Against = Annotated[
    str | None, typer.Option(metavar="DATA", help="Second data set, such as the test set, to find leaks between the two.")
]
Previous = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Earlier audit of the same examples, to reuse its results and report what is new and solved. Without DATA, its data "
        "and options are used.",
    ),
]
Checked = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Labels that you have checked, to calibrate p_mislabeled: decisions.csv, decisions.log or the folder of the log.",
    ),
]
RunFolder = Annotated[
    Path | None,
    typer.Option("--run", metavar="FOLDER", help="Folder of a finished run, to judge by its network."),
]
Cleanlab = Annotated[bool, typer.Option("--cleanlab", help="Also write the table as CSV, with cleanlab's columns added.")]
Embed = Annotated[
    str,
    typer.Option(
        metavar="NAME", help="Features of images and text: auto, an embedder (mohs list embedders), or none to train a network."
    ),
]
Finetune = Annotated[bool, typer.Option("--finetune", help="Also judge images by a fine-tuned backbone (slow without a GPU).")]
Precision = Annotated[
    float,
    typer.Option(metavar="SHARE", help="Expected precision (0 to 1): share of flagged labels that are wrong."),
]
OutFolder = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER", help="Folder of this audit; default: a folder in --runs. With --stream also an s3:// or gs:// address."
    ),
]
Csv = Annotated[bool, typer.Option("--csv", help="Also write the table as CSV.")]
Stream = Annotated[
    bool,
    typer.Option(
        "--stream",
        help="Bounded memory: judge features or out-of-sample logits in .parquet or .npy files as they are read.",
    ),
]
STREAMED = ("precision", "folds", "seed", "runs", "out")  # options that --stream takes


def audit(
    context: typer.Context,
    data: o.DataWord = None,
    embed: Embed = "auto",
    precision: Precision = 0.8,
    text: o.TextColumn = None,
    finetune: Finetune = False,
    model: o.Model = None,
    loss: Loss = "auto",
    recipe: Recipe = "auto",
    epochs: Epochs = None,
    batch: Batch = None,
    folds: Folds = None,
    label: o.Label = None,
    group: o.Group = None,
    separator: o.Separator = None,
    target: o.Target = None,
    image_size: o.ImageSize = None,
    seed: o.Seed = None,
    device: o.Device = "auto",
    runs: o.Runs = Path("runs"),
    out: OutFolder = None,
    run: RunFolder = None,
    corrected: o.Corrected = None,
    votes: o.Votes = None,
    issues: IssueNames = "auto",
    against: Against = None,
    previous: Previous = None,
    checked: Checked = None,
    gate: GateWord = None,
    csv: Csv = False,
    cleanlab: Cleanlab = False,
    stream: Stream = False,
    on: o.On = "local",
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Find the mislabeled, ambiguous, hard and easy examples of DATA, and other issues. Write a table and an HTML report.

    Without DATA, audit the data of --previous or, by default, digits with 10 % wrong labels (a demo). Run the same command
    again to resume.
    """
    from mohs.audit.gate import parse_gate
    from mohs.issues.catalog import ISSUES

    gates = [parse_gate(text, (*NAMES, *ISSUES)) for text in gate or ()]
    given = {"model": model, "epochs": epochs, "batch": batch, "seed": seed, "run": run, "against": against}
    given |= {"previous": previous, "checked": checked}
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    reading = {"label": label, "group": group, "separator": separator, "target": target, "image_size": image_size, "text": text}
    reading["votes"] = votes
    how = {name: value for name, value in reading.items() if value is not None}
    if stream:
        other = {**given, **how, "corrected": corrected, "csv": csv or None, "cleanlab": cleanlab or None}
        other |= {"embed": None if embed == "auto" else embed, "loss": None if loss == "auto" else loss}
        other |= {"recipe": None if recipe == "auto" else recipe, "issues": None if issues in ("auto", "none") else issues}
        other["device"] = device if device.startswith("cuda") else None  # rows are judged on the CPU
        unused = [name for name, value in other.items() if value is not None and name not in STREAMED]
        if finetune or unused:
            raise ValueError(f"--stream judges features or logits in files: leave --{(['finetune'] * finetune + unused)[0]} out")
        chosen = {"precision": precision, "seed": seed or 0, "runs": runs, "out": out}
        chosen |= {} if folds is None else {"folds": folds}
        _stream(data, gates, chosen, on=on, as_json=as_json, quiet=quiet)
        return
    judge = {"embed": embed, "precision": precision, "finetune": finetune, "loss": loss, "recipe": recipe}
    judge |= {"folds": folds, "issues": issues, "device": device}
    options |= {name: value for name, value in judge.items() if _is_given(context, name)}
    done = _audited(data, quiet, on, out=out, runs=runs, open_as=how, corrected=corrected, **options)
    table = _as_csv(done, cleanlab=cleanlab) if csv or cleanlab else done.folder / "hardness.parquet"
    broken = [str(gate) for gate in gates if not gate.holds(done.shares)]
    if not quiet:
        _print(done, table, gates, as_json=as_json)
    if broken:
        raise typer.Exit(1)


def _is_given(context: typer.Context, name: str) -> bool:
    """Whether an option was given on the command line; others take their defaults, or the values of --previous."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _stream(data: str | None, gates: list[Gate], how: dict[str, Any], *, on: str, as_json: bool, quiet: bool) -> None:
    from mohs._core.executor import executor_on
    from mohs._core.remote import is_remote, upload
    from mohs.hardness.shards import open_source
    from mohs.workflow import audit_stream

    if data is None:
        raise ValueError("--stream needs DATA: a .parquet file, or a folder of .parquet or .npy files")
    source, remote = open_source(data, headless=True), how["out"] is not None and is_remote(how["out"])
    with progress(quiet=quiet) as (tell, _), executor_on(on) as executor:
        done = audit_stream(source, tell=tell, executor=executor, **{**how, "out": None if remote else how["out"]})
        if remote:
            tell(f"uploading to {how['out']}")
            upload(done.folder, str(how["out"]))
    broken = [str(gate) for gate in gates if not gate.holds(done.shares)]
    if as_json:
        plain = {"folder": done.folder, "table": done.table, "report": done.report, "examples": done.rows, "shares": done.shares}
        plain |= {"gates_broken": broken, "approximate": done.facts["approximate"]}
        typer.echo(json.dumps(plain, default=str))
    elif not quiet:
        unjudged = f", {done.unjudged:,} not judged (no finite scores)" if done.unjudged else ""
        typer.echo(f"{done.rows:,} examples: " + ", ".join(f"{count:,} {name}" for name, count in done.counts.items()) + unjudged)
        for line in (done.estimate.summary, *(f"note: {note}" for note in done.facts["approximate"])):
            typer.echo(line)
        for gate in gates:
            typer.echo(gate.result(done.shares))
        typer.echo(f"table:  {done.table}")
        typer.echo(f"flagged: {done.flagged}   (mohs review opens it)")
        typer.echo(f"report: {done.report}")
    if broken:
        raise typer.Exit(1)


def _audited(data: str | None, quiet: bool, on: str, **options: Any) -> AuditResult:
    from mohs._core.executor import executor_on
    from mohs.workflow import audit as audit_data

    try:
        with progress(quiet=quiet) as (tell, watch), executor_on(on) as executor:
            return audit_data(data, tell=tell, watch=watch, executor=executor, **options)
    except KeyboardInterrupt:
        typer.echo("mohs: interrupted; run the same command again to resume", err=True)
        raise typer.Exit(130) from None


def _as_csv(done: AuditResult, *, cleanlab: bool) -> Path:
    from mohs.audit.cleanlab_columns import cleanlab_columns
    from mohs.hardness.table import write_table

    write_table(cleanlab_columns(done.table) if cleanlab else done.table, done.folder / "hardness.csv")
    return done.folder / "hardness.csv"


def _print(done: AuditResult, table: Path, gates: list[Gate], *, as_json: bool) -> None:
    from mohs.audit.gallery_rows import rows_to_check
    from mohs.issues.catalog import ISSUES
    from mohs.report.summary import check_command, counts_line, unflagged

    facts = done.facts
    if as_json:
        plain: dict[str, Any] = {
            "folder": done.folder,
            "table": table,
            "report": done.report,
            "examples": len(done.table),
            "shares": done.shares,
        }
        plain["gates_broken"] = [str(gate) for gate in gates if not gate.holds(done.shares)]
        changes: dict[str, Any] = {} if done.diff is None else {"changes": done.diff.counts}
        changes |= {"groups": facts["groups"]} if "groups" in facts else {}
        changes |= {"checked_labels": facts["checked labels"]} if "checked labels" in facts else {}
        typer.echo(json.dumps({**plain, **changes, "loss": done.chosen or None}, default=str))
        return
    typer.echo(counts_line(done))
    if not done.shares["mislabeled"]:
        typer.echo(unflagged(done))
    if done.issues is not None:
        counts = {name: "all" if one.flag.all() else f"{one.number:,}" for name, one in done.issues.found.items() if one.share}
        found = [f"{ISSUES[name].title.lower()} ({count})" for name, count in counts.items()]
        typer.echo(f"other issues: {', '.join(found) or 'none'}")
    if "checked labels" in facts:
        typer.echo(facts["checked labels"])
    if done.diff is not None:
        changed = {name: count for name, count in done.diff.counts.items() if name != "unchanged"}
        typer.echo(f"since {done.diff.previous}: {', '.join(f'{count:,} {name}' for name, count in changed.items())}")
    if "labels made wrong" in facts:
        wrong, flagged, hits = (facts[name] for name in ("labels made wrong", "flagged", "flagged and wrong"))
        typer.echo(f"{wrong} labels were made wrong on purpose; {hits} of them are among the {flagged} flagged")
    for gate in gates:
        typer.echo(gate.result(done.shares))
    typer.echo(f"table:  {table}")
    typer.echo(f"report: {done.report}")
    if "checked labels" not in facts and rows_to_check(done.table):
        typer.echo(f"next:   check the labels under “Check first” in the report, then {check_command(done)}")
