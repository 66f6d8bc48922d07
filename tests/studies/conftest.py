"""A small study on digits, and one run of it that is trained once for all files here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mohs.data.examples import Data
from mohs.studies.recipe import read_recipe
from mohs.studies.run_study import run_study
from mohs.train.resolve import prepare_data
from mohs.train.run_data import opened
from mohs.train.trained import Trained, load_run


@pytest.fixture
def written(tmp_path: Path, small_study: str) -> Callable[..., Path]:
    """The small study as a file, with some of its text replaced and more put behind it."""

    def write(*changes: tuple[str, str], more: str = "", name: str = "table1.toml") -> Path:
        text = small_study
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / name
        path.write_text(text + more)
        return path

    return write


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory, small_study: str) -> tuple[Trained, Data]:
    """A run with wrong labels, a trace and two classes held out, and its data as they were trained on."""
    folder = tmp_path_factory.mktemp("study")
    path = folder / "one.toml"
    text = small_study.replace("limit = 12", "limit = 30, holdout_classes = [8, 9]").replace("seeds = 2", "seeds = 1")
    text = text.replace("epochs = 2", "epochs = 4\ntrace = true\ntrace_test = true")
    path.write_text(text.partition('[[row]]\nlabel = "GCE"')[0])
    recipe = read_recipe(path)
    (result,) = run_study(recipe, runs=folder, device="cpu")
    (run,) = folder.glob(f"*-{result['run']}")
    made = load_run(run)
    return made, prepare_data(made.run, opened(made.run))
