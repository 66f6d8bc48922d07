"""Audits of regressions: wrong numbers in a column of a table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import average_precision_score

import mohs


@pytest.fixture(scope="module")
def houses(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray]:
    """Prices of 300 houses, of which one in fifteen has lost a digit or gained one."""
    rng = np.random.default_rng(0)
    area, age, town = rng.uniform(40, 200, 300), rng.uniform(0, 80, 300), rng.integers(3, size=300)
    price = 1000 * (2 * area - 0.8 * age + 60 * town + 8 * rng.normal(size=300))
    wrong = np.arange(300) % 15 == 0
    given = np.where(wrong, price * np.where(np.arange(300) % 2, 10, 0.1), price)
    file = tmp_path_factory.mktemp("houses") / "houses.csv"
    lines = [f"h{i},{area[i]:.1f},{age[i]:.0f},{'abc'[town[i]]}town,{given[i]:.0f}" for i in range(300)]
    file.write_text("\n".join(["id,area,age,town,price", *lines]))
    return file, wrong


def test_wrong_numbers_are_found_and_better_ones_suggested(houses: tuple[Path, np.ndarray]) -> None:
    file, wrong = houses
    result = mohs.audit(str(file), open_as={"target": "price"}, out=file.parent / "audit")
    table = result.table.to_pylist()
    assert average_precision_score(wrong, [row["p_mislabeled"] for row in table]) > 0.9
    assert table[0]["id"] == "h0"
    found = [row for row in table if row["verdict"] == "mislabeled"]
    assert len(found) > 10
    assert np.mean([wrong[int(row["id"][1:])] for row in found]) > 0.8
    factors = [row["suggested_label"] / row["label"] for row in found]
    assert all(one > 2 or one < 0.5 for one in factors)
    page = (file.parent / "audit" / "report.html").read_text()
    assert "This audit covers 300 examples." in page
    assert mohs.load_audit(file.parent / "audit").table.equals(result.table)


def test_numbers_are_not_trained_on(houses: tuple[Path, np.ndarray]) -> None:
    data = mohs.open_data(str(houses[0]), target="price")
    assert data.train.numeric
    with pytest.raises(mohs.DataError, match=r"cannot train on table|numbers as labels can be audited"):
        mohs.train(mohs.Run(epochs=1), data)


def test_numbers_that_are_wrong_in_whole_groups_are_found_by_other_groups(tmp_path: Path) -> None:
    rng, house = np.random.default_rng(0), np.repeat(np.arange(60), 5)  # five visits to each house
    area, age = rng.uniform(40, 200, 60), rng.uniform(0, 80, 60)
    wrong = np.arange(60) % 15 == 0
    price = (2000 * area - 800 * age) * np.where(wrong, 10, 1)
    columns = {"area": area[house] + 0.1 * rng.normal(size=300), "age": age[house] + 0.1 * rng.normal(size=300)}
    rows = pd.DataFrame({**columns, "house": house, "price": price[house]})
    found = mohs.audit(rows, target="price", group="house", out=tmp_path / "audit", issues="none")
    flagged = np.array(found.table.column("verdict").to_pylist()) == "mislabeled"
    assert flagged[wrong[house]].mean() > 0.7
    assert flagged[~wrong[house]].mean() < 0.02
    assert found.facts["groups"] == 60
