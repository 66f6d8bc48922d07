"""Progress of long work: the events (dictionaries) that are passed to a `watch` function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Watch = Callable[[dict[str, Any]], None]
UNWATCHED: Watch = lambda event: None


def counting(watch: Watch, what: str) -> Callable[[int, int], None]:
    """A callback (done, of) that passes the progress of work other than training on to `watch`."""
    return lambda done, of: watch({"what": what, "epoch": 0, "epochs": 1, "step": done, "steps": of, "so_far": dict})
