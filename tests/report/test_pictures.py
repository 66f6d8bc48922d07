"""How pictures are shown on the page."""

from __future__ import annotations

import pytest
from PIL import Image

from mohs.report.pictures import LONGER, Picture, shown


def test_an_example_without_an_image_has_no_picture() -> None:
    assert shown(None) is None


@pytest.mark.parametrize(
    ("size", "expected", "tiny"),
    [((8, 8), (96, 96), True), ((28, 28), (84, 84), True), ((64, 48), (96, 72), False), ((640, 1), (96, 1), False)],
)
def test_tiny_images_are_enlarged_by_whole_numbers_and_others_to_one_size(
    size: tuple[int, int], expected: tuple[int, int], tiny: bool
) -> None:
    found = shown(Image.new("RGB", size))
    assert isinstance(found, Picture)
    assert (found.width, found.height) == expected
    assert found.tiny == tiny
    assert max(expected) <= LONGER
    assert found.src.startswith("data:image/webp")
