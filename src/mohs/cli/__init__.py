"""The command line: each command is one library call; results go to stdout, everything else to stderr.

Exit codes: 0 success, 1 a gate failed, 2 usage error, 3 data error, 4 environment error, 130 interrupted.
Commands import what they need when they run, so that `mohs --help` does not import torch.
"""

from __future__ import annotations

import errno
import sys
import warnings
from pathlib import Path
from typing import Annotated

import typer

import mohs
from mohs import __version__
from mohs._core.errors import DataError, RunError
from mohs.cli import adapt, apply, audit, compare, doctor, embed, emphasis, listing, predict, report, review, score, study, train

NO_MEMORY = ("out of memory", "not enough memory", "can't allocate memory", "Storage size calculation overflowed")
USAGE, DATA, ENVIRONMENT, INTERRUPTED = 2, 3, 4, 130
AGAIN = "mohs: interrupted; run the same command again to resume"
PYTHON_WARNING = warnings.formatwarning
EXAMPLES = """\b
Examples:
  mohs audit                        a demonstration: digits with 10 % wrong labels
  mohs audit photos/                find mislabeled photos; subfolders are classes
  mohs train cifar10 --loss gce     train with a robust loss
  mohs list losses                  names and settings that --loss accepts

\b
Exit codes: 0 success, 1 a gate failed, 2 usage error, 3 data error,
            4 environment error, 130 interrupted."""

app = typer.Typer(
    name="mohs",
    epilog=EXAMPLES,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"max_content_width": 110},
)
COMMANDS = (  # in the order of `mohs --help`
    ("audit", audit.audit, "Find mislabeled, ambiguous and hard examples.", audit.EPILOG),
    ("report", report.report, "Write the HTML report of a finished audit.", report.EPILOG),
    ("review", review.review, "Review an audit in the browser: decide on its labels.", review.EPILOG),
    ("apply", apply.apply, "Write labels corrected by the decisions of a review.", apply.EPILOG),
    ("embed", embed.embed, "Turn images or text into features.", embed.EPILOG),
    ("score", score.score, "Score the hardness of examples from logits or features.", score.EPILOG),
    ("train", train.train, "Train a classifier.", train.EPILOG),
    ("predict", predict.predict, "Predict the classes of new inputs.", predict.EPILOG),
    ("compare", compare.compare, "Compare two runs, or losses over several seeds.", compare.EPILOG),
    ("adapt", adapt.adapt, "Adapt a classifier to an unlabeled domain.", adapt.EPILOG),
    ("study", study.study, "Reproduce tables and figures of papers.", study.EPILOG),
    ("emphasis", emphasis.emphasis, "Show which examples each loss emphasizes.", emphasis.EPILOG),
    ("list", listing.listing, "List losses, networks, data sets and other names.", listing.EPILOG),
    ("doctor", doctor.doctor, "Check the installation.", doctor.EPILOG),
)
for _name, _command, _short, _epilog in COMMANDS:
    app.command(_name, short_help=_short, epilog=_epilog)(_command)


def _show_version(given: bool) -> None:
    if given:
        typer.echo(f"mohs {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """Find hard and mislabeled training examples, and train classifiers that are robust to them."""


def _warning_line(message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None) -> str:
    """Format a warning: one of mohs without its place in the code, others as Python does."""
    own = Path(filename).is_relative_to(Path(mohs.__file__).parent)
    return f"Warning: {message}\n" if own else PYTHON_WARNING(message, category, filename, lineno, line)


def main() -> None:
    """Run the command; an error that the user can fix is one line on stderr and an exit code, never a traceback."""
    warnings.formatwarning = _warning_line
    try:
        app()
    except KeyboardInterrupt:
        typer.echo(AGAIN, err=True)
        sys.exit(INTERRUPTED)
    except SystemExit as stop:
        if isinstance(getattr(stop.__context__, "__cause__", None), KeyboardInterrupt):  # typer exits without a message
            typer.echo(AGAIN, err=True)
        raise
    except ModuleNotFoundError as error:
        from mohs.cli.environment import extra_of

        extra = extra_of(error.name or "") or "all"
        typer.echo(f"mohs: {error.name} is not installed: pip install 'mohs[{extra}]'", err=True)
        sys.exit(ENVIRONMENT)
    except OSError as error:
        typer.echo(f"mohs: {f'{error.filename}: ' if error.filename else ''}{error.strerror or error}", err=True)
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
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and not any(word in str(error) for word in NO_MEMORY):
            raise
        typer.echo(f"mohs: out of memory: reduce the batch, the network or the image size ({error})", err=True)
        sys.exit(ENVIRONMENT)
