"""What a part of the stress test did: the number of tries, the failures, and a time limit for each try."""

from __future__ import annotations

import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

KEPT, ALIKE = 20, 3  # failures that are kept in full: of other kinds, and of one error


class Hang(BaseException):
    """A try that takes longer than its limit."""


@dataclass
class Outcome:
    """Tries and failures of one part; `failed` counts by the kind of failure."""

    part: str
    tries: int = 0
    failed: dict[str, int] = field(default_factory=dict)
    shown: list[str] = field(default_factory=list)
    notes: dict[str, int] = field(default_factory=dict)

    @property
    def failures(self) -> int:
        return sum(self.failed.values())

    def fail(self, kind: str, what: str, error: str = "") -> None:
        """Count a failure and keep what was tried; of one error, the first few tries."""
        self.failed[kind] = self.failed.get(kind, 0) + 1
        alike = sum(error.rpartition("(")[2] in one for one in self.shown) if error else len(self.shown) // KEPT
        if alike < ALIKE:
            self.shown.append(f"[{kind}] {what}{f' -> {error}' if error else ''}")
            print(self.shown[-1], file=sys.stderr, flush=True)

    def note(self, name: str) -> None:
        """Count something that is not a failure."""
        self.notes[name] = self.notes.get(name, 0) + 1


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise Hang in the block after this many seconds."""

    def stop(number: int, frame: object) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def last_call(error: BaseException) -> str:
    """Type and message of an error, and the line that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "/mohs/" in frame.filename] or list(frames)
    at = f"{own[-1].filename.rpartition('/mohs/')[2]}:{own[-1].lineno}" if own else ""
    return f"{type(error).__name__}: {str(error)[:160]} ({at})"
