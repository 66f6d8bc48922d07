"""What is wrong with the data or with a run, apart from a wrong call: the command line gives each an exit code."""

from __future__ import annotations


class DataError(ValueError):
    """A problem in the data; the message names the file or argument, the row, and what to do."""


class RunError(RuntimeError):
    """A run that cannot go on; what it finished is kept, and the message says how to resume."""


class Diverged(RunError):  # noqa: N818  (what happened, not what is wrong with the call)
    """A run whose loss became NaN or infinite: a study notes it and goes on, which it does for no other RunError."""
