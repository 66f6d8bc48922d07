"""Progress on stderr: steps as lines, a bar on a terminal; nothing of the bar where stderr is a file or a pipe."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer

PAUSE = 0.5  # seconds between looks at the loss, which wait for the device
Tell = Callable[[str], None]
Watch = Callable[[dict[str, Any]], None]


@contextmanager
def progress(*, quiet: bool = False) -> Iterator[tuple[Tell, Watch]]:
    """What to tell of each step of the work, and of each step and epoch of a training."""
    if quiet or not sys.stderr.isatty():
        yield (lambda text: None if quiet else typer.echo(text, err=True)), (lambda event: None)
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("epoch {task.fields[epoch]}"), BarColumn(), TextColumn("{task.fields[told]}"), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=1.0, epoch="", told="", visible=False)
        looked = 0.0

        def tell(text: str) -> None:
            bar.reset(task, visible=False)
            bar.console.print(escape(text), highlight=False)

        def watch(event: dict[str, Any]) -> None:
            nonlocal looked
            if "step" in event:
                done = (event["epoch"] + event["step"] / event["steps"]) / event["epochs"]
                bar.update(task, completed=done, visible=True, epoch=f"{event['epoch'] + 1}/{event['epochs']}")
                if time.monotonic() - looked > PAUSE:
                    looked = time.monotonic()
                    bar.update(task, told=_words(event["so_far"]()))
            else:
                bar.update(task, told=_words(event))

        yield tell, watch


def _words(line: dict[str, Any]) -> str:
    names = {"total": "loss", "accuracy": "accuracy", "val_accuracy": "validation"}
    return "  ".join(f"{word} {line[name]:.4f}" for name, word in names.items() if name in line)
