"""The scripts of supply/ as modules."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """A function that imports a script by name."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "supply")
    return importlib.import_module
