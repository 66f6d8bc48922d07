"""Figures of the papers: what each shows, in numbers, and that the files are pictures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from PIL import Image

from mohs._core.errors import DataError
from mohs.report import paper_figures
from mohs.report.paper_figures import FIGURES, attacked, draw_figures, lines, painted, photographs, two_features

ROOT = Path(__file__).parents[2]
pytest.importorskip("vl_convert", reason="charts need the report extra")


def test_figures_from_results_and_formulas(tmp_path: Path) -> None:
    (tmp_path / "results/avh").mkdir(parents=True)
    for kind in ("noise", "contrast"):
        name = f"results/avh/degradation-{kind}.csv"
        (tmp_path / name).write_text((ROOT / name).read_text())
    made = draw_figures(tmp_path, ["degradation", "uncertainty"])
    assert [path.name for path in made] == ["paper-degradation.svg", "paper-uncertainty.svg"]
    for path in made:
        assert path.read_text().startswith("<svg")
    assert "level of contrast" in made[0].read_text()


def test_a_course_needs_held_out_images(tmp_path: Path) -> None:
    (tmp_path / "results/avh").mkdir(parents=True)
    file = tmp_path / "results/avh/observations-fashion.csv"
    file.write_text("row,seed,avh_epoch_1\nVGG,0,0.5\n")
    with pytest.raises(DataError, match=r"no columns test_\.\.\._epoch_n"):
        draw_figures(tmp_path, ["course"])
    numbers = ",".join(f"test_{name}_epoch_{n}" for name in ("avh", "norm", "right") for n in (1, 2))
    file.write_text(f"row,seed,{numbers}\nVGG,0,1,2,3,4,5,6\nVGG,1,3,2,3,4,5,6\n")
    (made,) = draw_figures(tmp_path, ["course"])
    assert made.read_text().startswith("<svg")


def test_a_line_is_the_mean_over_seeds() -> None:
    found = [{"row": "a", "seed": 0, "v": 1.0}, {"row": "a", "seed": 1, "v": 3.0}, {"row": "b", "seed": 0, "v": 5.0}]
    (values,) = json.loads(lines(found, {"2": "v"}, "x", "y").to_json())["datasets"].values()
    assert values == [{"row": "a", "x": 2.0, "y": 2.0}, {"row": "b", "x": 2.0, "y": 5.0}]


def test_features_and_the_way_of_an_attack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paper_figures, "EPOCHS", 2)
    network, data = two_features([])
    assert data.test is not None
    label = data.test.labels[:1]
    way = attacked(network, data.test.inputs[:1].float() / 255, label)
    assert len(way) == paper_figures.ATTACK_STEPS + 1
    first, last = (
        torch.nn.functional.cross_entropy(network.head(torch.tensor([one])), label).item() for one in (way[0], way[-1])
    )
    assert last > first  # further from its label


def test_segments_are_painted_by_size_and_photographs_fit() -> None:
    colors = painted(torch.tensor([[5, 5, 5], [5, 2, 2]])).getcolors()
    assert sorted(count for count, _ in colors) == [2, 4]
    again = painted(torch.tensor([[1, 1, 1], [1, 0, 0]])).getcolors()
    assert sorted(colors) == sorted(again)  # names do not count
    assert [tuple(one.shape) for one in photographs()] == [(3, 64, 64)] * 2


def test_segmentation_is_a_sheet_of_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paper_figures, "METHODS", {"CE": {"continuity": 0.0, "width": 8}})
    monkeypatch.setattr(paper_figures, "SIDE", 16)
    (made,) = draw_figures(tmp_path, ["segmentation"])
    with Image.open(made) as sheet:
        assert sheet.size == (3 * 36, 16 + 4 * 36)


def test_unknown_figures_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no figure 'nine'; known: features, trajectory"):
        draw_figures(tmp_path, ["nine"])
    assert set(FIGURES) == {"features", "trajectory", "degradation", "course", "uncertainty", "segmentation"}
