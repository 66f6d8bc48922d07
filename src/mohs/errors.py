"""What is wrong with the data, apart from what is wrong with a call: the command line gives it an exit code of its own."""

from __future__ import annotations


class DataError(ValueError):
    """A problem in the data; the message names the file or argument, the row, and what to do."""
