"""Each defect of an image is found by its own measure, relative to the data; natural variety stays unflagged."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import avg_pool2d, interpolate

import mohs
from mohs.issues.image_defects import blur_effect

DEFECTS = ("dark", "bright", "blurry", "low_information", "grayscale")


def pictures(size: int = 200, side: int = 40) -> torch.Tensor:
    """Colored noise, coarse and fine, at various exposures."""
    draw = torch.Generator().manual_seed(0)
    coarse = interpolate(torch.rand(size, 3, 5, 5, generator=draw), size=(side, side), mode="bilinear")
    fine = torch.rand(size, 3, side, side, generator=draw)
    light = 0.7 + 0.3 * torch.rand(size, 1, 1, 1, generator=draw)
    return ((0.6 * coarse + 0.4 * fine) * light * 255).to(torch.uint8)


def spoiled(images: torch.Tensor, defect: str) -> torch.Tensor:
    x = images.float()
    made = {
        "dark": x * 0.1,
        "bright": 255 - (255 - x) * 0.1,
        "blurry": interpolate(avg_pool2d(x, 8), size=x.shape[2:], mode="bilinear"),
        "low_information": torch.full_like(x, 120),
        "grayscale": x.mean(1, keepdim=True).expand_as(x),
    }[defect]
    return made.to(torch.uint8)


def test_natural_variety_is_not_flagged() -> None:
    found = mohs.find_issues(images=pictures()).found
    assert {name: int(found[name].flag.sum()) for name in DEFECTS} == dict.fromkeys(DEFECTS, 0)


@pytest.mark.parametrize("defect", DEFECTS)
def test_the_spoiled_images_are_flagged_and_score_highest(defect: str) -> None:
    images = pictures()
    images[:6] = spoiled(images[:6], defect)
    found = mohs.find_issues(images=images).found[defect]
    assert np.flatnonzero(found.flag).tolist() == list(range(6))
    assert found.score[:6].min() > found.score[6:].max()


def test_what_is_usual_in_the_data_is_not_a_defect() -> None:
    dark = spoiled(pictures(), "dark")
    assert not mohs.find_issues(images=dark).found["dark"].flag.any()
    assert "grayscale" not in mohs.find_issues(images=pictures()[:, :1]).found


def test_blur_does_not_depend_on_contrast() -> None:
    gray = pictures(4).float().mean(1)
    torch.testing.assert_close(blur_effect(gray), blur_effect(0.2 * gray + 10), atol=1e-3, rtol=0)
    assert blur_effect(torch.full((1, 9, 9), 7.0)).item() == 1.0


def test_odd_sizes_and_shapes_are_those_of_the_stored_images() -> None:
    sizes = np.tile([480, 640], (200, 1))
    sizes[0], sizes[1] = (60, 80), (100, 2000)
    found = mohs.find_issues(images=pictures(), sizes=sizes).found
    assert np.flatnonzero(found["odd_size"].flag).tolist() == [0]
    assert np.flatnonzero(found["odd_aspect"].flag).tolist() == [1]
    assert found["odd_size"].score[0] == pytest.approx(1 - 60 / 480)


def test_large_images_are_measured_by_some_of_their_lines() -> None:
    large = interpolate(pictures(40).float(), size=(224, 224)).to(torch.uint8)
    large[0] //= 12
    assert np.flatnonzero(mohs.find_issues(images=large).found["dark"].flag).tolist() == [0]
