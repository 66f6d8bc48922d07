"""The command line: each command is one library call; results go to stdout, everything else to stderr.

Exit codes: 0 fine, 1 over a gate the user set, 2 usage, 3 data, 4 environment, 130 interrupted.
Commands import what they need when they run, so that `mohs --help` imports no torch.
"""

from __future__ import annotations

import errno
import sys
from typing import Annotated

import typer

from mohs import __version__
from mohs._core.errors import DataError, RunError
from mohs.cli.adapt import adapt
from mohs.cli.apply import apply
from mohs.cli.audit import audit
from mohs.cli.compare import compare
from mohs.cli.doctor import doctor
from mohs.cli.emphasis import emphasis
from mohs.cli.listing import listing
from mohs.cli.report import report
from mohs.cli.score import score
from mohs.cli.study import study
from mohs.cli.train import train

USAGE, DATA, ENVIRONMENT, INTERRUPTED = 2, 3, 4, 130

app = typer.Typer(
    name="mohs",
    help="How hard each training example is, and classifiers trained with the emphasis those examples deserve.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command("audit")(audit)
app.command("report")(report)
app.command("apply")(apply)
app.command("compare")(compare)
app.command("emphasis")(emphasis)
app.command("list")(listing)
app.command("score")(score)
app.command("train")(train)
app.command("adapt")(adapt)
app.command("study")(study)
app.command("doctor")(doctor)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"mohs {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """How hard each training example is, and classifiers trained with the emphasis those examples deserve."""


def main() -> None:
    """Run the command; a problem the user can mend is one line on stderr and an exit code, never a traceback."""
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except ModuleNotFoundError as error:
        typer.echo(f"mohs: {error.name} is not installed; pip install 'mohs[all]' brings every extra", err=True)
        sys.exit(ENVIRONMENT)
    except OSError as error:
        typer.echo(f"mohs: {error.filename or ''}: {error.strerror or error}", err=True)
        sys.exit(ENVIRONMENT if error.errno in (errno.ENOSPC, errno.EROFS) else DATA)
    except DataError as error:
        typer.echo(f"mohs: {error}", err=True)
        sys.exit(DATA)
    except ValueError as error:
        typer.echo(f"mohs: {error}", err=True)
        sys.exit(USAGE)
    except RunError as error:
        typer.echo(f"mohs: {error}", err=True)
        sys.exit(ENVIRONMENT)
