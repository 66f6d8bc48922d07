"""How a picture of an example is shown on the page: its address and its size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mohs.audit.thumbnails import data_address

if TYPE_CHECKING:
    from PIL.Image import Image

LONGER = 96  # longer side in pixels on the page, at most


@dataclass(frozen=True)
class Picture:
    """What an img element needs; tiny: whether it is enlarged by a whole number, with sharp pixels."""

    src: str
    width: int
    height: int
    tiny: bool


def shown(image: Image | None) -> Picture | None:
    """The picture of an image; images of at most half of LONGER are enlarged by a whole number."""
    if image is None:
        return None
    longer = max(image.size)
    tiny = 2 * longer <= LONGER
    factor = LONGER // longer if tiny else LONGER / longer
    width, height = (max(1, round(side * factor)) for side in image.size)
    return Picture(data_address(image), width, height, tiny)
