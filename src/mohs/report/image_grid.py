"""A grid of example images with captions, as in the AVH paper's Figure 21."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from mohs._core.errors import DataError
from mohs.audit.thumbnails import picture
from mohs.data.examples import Examples

if TYPE_CHECKING:
    from PIL.Image import Image

SIDE, GAP, LINE = 64, 6, 14  # pixels


def picture_grid(
    examples: Examples, places: Sequence[int], *, captions: Sequence[str] | None = None, columns: int = 8, side: int = SIDE
) -> Image:
    """The images at these places, row by row, each resized to `side` × `side` pixels."""
    from PIL import Image, ImageDraw

    if examples.kind != "images":
        raise DataError(f"{examples.name}: a grid needs images, but these are features of shape {examples.shape}")
    if not len(places):
        raise ValueError("places is empty: give at least one place")
    if captions is not None and len(captions) != len(places):
        raise ValueError(f"captions has {len(captions)} entries for {len(places)} places; give one caption per place")
    rows = -(-len(places) // columns)
    wide, high = side + GAP, side + GAP + (LINE if captions else 0)
    sheet = Image.new("RGB", (GAP + wide * min(columns, len(places)), GAP + high * rows), "white")
    draw = ImageDraw.Draw(sheet)
    for i, place in enumerate(places):
        left, top = GAP + wide * (i % columns), GAP + high * (i // columns)
        image = picture(examples.inputs[torch.tensor([int(place)])][0]).convert("RGB")
        sheet.paste(image.resize((side, side), Image.Resampling.NEAREST), (left, top))
        if captions is not None:
            draw.text((left, top + side), captions[i].encode("latin-1", "replace").decode("latin-1")[:11], fill="black")
    return sheet
