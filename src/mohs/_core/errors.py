"""Errors in the data or in a run, as opposed to wrong arguments; the command line gives each its own exit code."""

from __future__ import annotations


class DataError(ValueError):
    """A problem in the data; the message names the file or argument, the row, and what to do."""


class NoLabels(DataError):  # noqa: N818  (what is wrong)
    """The data have no labels; callers that need none can read them as unlabeled."""


class RunError(RuntimeError):
    """A run that cannot continue; finished work is kept, and the message says how to resume."""


class FolderInUse(RunError):  # noqa: N818  (what is wrong)
    """Another process holds the folder."""


class Diverged(RunError):  # noqa: N818  (an event, not a wrong call)
    """The loss of a run became NaN or infinite: the only RunError that a study records and continues after."""
