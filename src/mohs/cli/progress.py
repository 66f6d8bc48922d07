"""A progress bar on a terminal, on stderr; nothing where stderr is a file or a pipe."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

PAUSE = 0.5  # seconds between looks at the loss, which wait for the device


@contextmanager
def progress_bar(epochs: int, *, quiet: bool = False) -> Iterator[Callable[[dict[str, Any]], None]]:
    """What to tell of each step and epoch."""
    if quiet or not sys.stderr.isatty():
        yield lambda event: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = ("epoch {task.fields[epoch]}", BarColumn(), TextColumn("{task.fields[told]}"), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=1.0, epoch=f"0/{epochs}", told="")
        looked = 0.0

        def tell(event: dict[str, Any]) -> None:
            nonlocal looked
            if "step" in event:
                done = (event["epoch"] + event["step"] / event["steps"]) / epochs
                bar.update(task, completed=done, epoch=f"{event['epoch'] + 1}/{epochs}")
                if time.monotonic() - looked > PAUSE:
                    looked = time.monotonic()
                    bar.update(task, told=_words(event["so_far"]()))
            else:
                bar.update(task, told=_words(event))

        yield tell


def _words(line: dict[str, Any]) -> str:
    names = {"total": "loss", "accuracy": "accuracy", "val_accuracy": "validation"}
    return "  ".join(f"{word} {line[name]:.4f}" for name, word in names.items() if name in line)
