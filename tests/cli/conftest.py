"""Commands run as a user runs them, without the seconds that Python needs to import torch."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

FORKED = """
import os, sys
for stream, file in ((1, out), (2, err)):
    os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), stream)
sys.argv = ["mohs", *words]
from mohs.cli import main
main()
"""


class Shown(NamedTuple):
    """What a command leaves."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def mohs_command(run_forked: Callable[..., int]) -> Callable[..., Shown]:
    """A function that runs `mohs WORDS` in a process of its own."""

    def command(*words: str | Path) -> Shown:
        with tempfile.TemporaryDirectory() as folder:
            out, err = (os.path.join(folder, name) for name in ("out", "err"))
            code = run_forked(FORKED, words=[str(word) for word in words], out=out, err=err)
            return Shown(code, Path(out).read_text(), Path(err).read_text())

    return command
