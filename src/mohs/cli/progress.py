"""Progress on stderr: a line per stage, and a bar if stderr is a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer

from mohs._core.watch import Watch

PAUSE = 0.5  # seconds between reads of the loss, which synchronize with the device
Tell = Callable[[str], None]


@contextmanager
def progress(*, quiet: bool = False) -> Iterator[tuple[Tell, Watch]]:
    """Yields a function that prints a stage of the work, and a `watch` for the steps and epochs of training."""
    if quiet or not sys.stderr.isatty():
        yield (lambda text: None if quiet else typer.echo(text, err=True)), (lambda event: None)
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.fields[work]}"), BarColumn(), TextColumn("{task.fields[metrics]}"), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=1.0, work="", metrics="", visible=False)
        last_read = 0.0

        def tell(text: str) -> None:
            bar.reset(task, visible=False)
            bar.console.print(escape(text), highlight=False)

        def watch(event: dict[str, Any]) -> None:
            nonlocal last_read
            if "step" in event:
                done = (event["epoch"] + event["step"] / event["steps"]) / event["epochs"]
                work = event.get("what", f"epoch {event['epoch'] + 1}/{event['epochs']}")
                bar.update(task, completed=done, visible=True, work=work)
                if time.monotonic() - last_read > PAUSE:
                    last_read = time.monotonic()
                    bar.update(task, metrics=_words(event["so_far"]()))
            else:
                bar.update(task, metrics=_words(event))

        yield tell, watch


def _words(line: dict[str, Any]) -> str:
    names = {"total": "loss", "accuracy": "accuracy", "val_accuracy": "validation"}
    return "  ".join(f"{word} {line[name]:.4f}" for name, word in names.items() if name in line)
