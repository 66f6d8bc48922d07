"""Unsupervised segmentation: the scores against known cases, the scenes, and what training does."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from mohs.studies.recipe import read_recipe
from mohs.studies.run_study import run_study
from mohs.studies.systems.segmentation import Segmentation, boundary, boundary_f, continuity, miou, scene, segment

RECIPE = Path(__file__).parents[3] / "recipes/adr/figure8.toml"
HALVES = torch.arange(8).repeat(8, 1) // 4  # left and right


def test_scores_of_known_segmentations() -> None:
    assert miou(1 - HALVES, HALVES) == 1.0  # names do not count
    assert miou(torch.zeros_like(HALVES), HALVES) == 0.5  # one segment: each region is half of it
    quarters = HALVES + 2 * HALVES.T
    assert miou(quarters, HALVES) == 0.5  # each region has two segments of half its size
    assert boundary_f(1 - HALVES, HALVES) == 1.0
    assert boundary_f(torch.zeros_like(HALVES), HALVES) == 0.0
    shifted = torch.arange(8).repeat(8, 1) // 5  # a pixel to the right
    assert boundary_f(shifted, HALVES) == 1.0
    assert boundary(HALVES).nonzero()[:, 1].unique().tolist() == [3]


def test_continuity_is_the_mean_difference_of_neighbors() -> None:
    out = torch.tensor([[[0.0, 1.0], [2.0, 5.0]]])
    assert continuity(out).item() == (2 + 4) / 2 + (1 + 3) / 2


def test_scenes_follow_their_seed_and_have_several_regions() -> None:
    image, regions = scene(32, noise=0.1, seed=3)
    again, same = scene(32, noise=0.1, seed=3)
    assert image.shape == (3, 32, 32)
    assert torch.equal(image, again)
    assert torch.equal(regions, same)
    assert not torch.equal(regions, scene(32, noise=0.1, seed=4)[1])
    assert len(regions.unique()) >= 2


def test_training_groups_a_clean_scene_and_adr_changes_it() -> None:
    run = Segmentation(size=32, width=24, epochs=60)
    image = torch.stack([HALVES.repeat_interleave(4, 0).repeat_interleave(4, 1).float()] * 3)
    regions = HALVES.repeat_interleave(4, 0).repeat_interleave(4, 1)
    noisy = image + 0.02 * torch.randn(3, 32, 32, generator=torch.Generator().manual_seed(0))
    found = segment(noisy, run, seed=0)
    assert miou(found, regions) > 0.6
    other = segment(noisy, dataclasses.replace(run, gamma=0.5), seed=0)
    assert not torch.equal(found, other)
    assert torch.equal(found, segment(noisy, run, seed=0))


def test_the_recipe_runs_small_and_settings_are_checked(tmp_path: Path) -> None:
    results = run_study(read_recipe(RECIPE, scale="smoke"), runs=tmp_path, device="cpu")
    assert [one["row"] for one in results] == ["CE", "CE + ADR", "continuity", "continuity + ADR"]
    assert all(0 < one["miou"] <= 1 for one in results)
    with pytest.raises(ValueError, match="tau must be at most width"):
        Segmentation(width=4, tau=7)
