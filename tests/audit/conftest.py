"""Small data that an audit gets through in a second or two, and the results that reports are tested with."""

from __future__ import annotations

import csv
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest
import torch

from mohs.data.examples import Data, Examples
from mohs.data.noise import add_noise
from mohs.data.readers.digits import digits as load_digits

SPEC = spec_from_file_location("report_fixtures", Path(__file__).parents[1] / "report" / "conftest.py")
assert SPEC is not None
assert SPEC.loader is not None
REPORT = module_from_spec(SPEC)
SPEC.loader.exec_module(REPORT)
digits, hostile, synthetic = REPORT.digits, REPORT.hostile, REPORT.synthetic  # fixtures

WORDS = {
    "sport": ["match", "goal", "team", "player", "coach", "league", "score", "win", "season", "ball"],
    "food": ["soup", "bread", "cheese", "cook", "oven", "taste", "salt", "recipe", "sugar", "fry"],
    "money": ["bank", "loan", "interest", "account", "pay", "debt", "credit", "market", "stock", "fund"],
}
Wrong = np.ndarray[tuple[int], np.dtype[np.bool_]]


@pytest.fixture(scope="session")
def few_images() -> Examples:
    """240 digits, a tenth of their labels wrong."""
    return add_noise(load_digits().train.take(torch.arange(240)), {"name": "symmetric", "rate": 0.1}, seed=0)


@pytest.fixture(scope="session")
def few_features(few_images: Examples) -> Data:
    """The same as rows of pixels."""
    assert isinstance(few_images.inputs, torch.Tensor)
    return Data(replace(few_images, inputs=few_images.inputs.flatten(1).float() / 255))


def written(file: Path, header: list[str], rows: list[list[object]]) -> Path:
    with file.open("w", newline="") as out:
        csv.writer(out).writerows([header, *rows])
    return file


def spoilt(count: int) -> tuple[np.ndarray, np.ndarray, Wrong]:
    """True classes, given ones with a tenth wrong, and which."""
    random = np.random.default_rng(0)
    true = np.arange(count) % 3
    wrong = random.random(count) < 0.1
    return true, np.where(wrong, (true + 1) % 3, true), wrong


@pytest.fixture(scope="session")
def few_texts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Wrong]:
    """A CSV file of 240 short texts on three topics, a tenth of their labels wrong; and which."""
    random, names = np.random.default_rng(1), list(WORDS)
    true, given, wrong = spoilt(240)
    rows: list[list[object]] = [
        [f"{' '.join(['the', *random.choice(WORDS[names[t]], 6)])} no. {i}", names[g]]
        for i, (t, g) in enumerate(zip(true, given, strict=True))
    ]
    return written(tmp_path_factory.mktemp("texts") / "topics.csv", ["message", "label"], rows), wrong


@pytest.fixture(scope="session")
def few_rows(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Wrong]:
    """A CSV file of 500 rows with numbers, a category, a date and missing values, a tenth of the labels wrong; and which."""
    random, names = np.random.default_rng(2), list(WORDS)
    true, given, wrong = spoilt(500)
    x = np.stack([np.cos(2.1 * true), np.sin(2.1 * true)], 1) + 0.3 * random.normal(size=(500, 2))
    rows: list[list[object]] = []
    for i, t in enumerate(true):
        color = ("red", "green", "blue")[t if random.random() < 0.8 else random.integers(3)]
        first, color = "" if random.random() < 0.1 else f"{x[i, 0]:.3f}", "" if random.random() < 0.1 else color
        day = f"2020-0{1 + random.integers(9)}-1{random.integers(9)}"
        rows.append([first, f"{x[i, 1]:.3f}", color, day, "same", names[given[i]]])
    header = ["width", "height", "color", "day", "nothing", "label"]
    return written(tmp_path_factory.mktemp("rows") / "rows.csv", header, rows), wrong
