"""A grid of pictures of examples, each with a line under it: the AVH paper's Figure 21 for one's own data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from mohs._core.errors import DataError
from mohs.data.examples import Examples

if TYPE_CHECKING:
    from PIL.Image import Image

SIDE, GAP, LINE = 64, 6, 14  # pixels


def picture_grid(
    examples: Examples, places: Sequence[int], *, captions: Sequence[str] | None = None, columns: int = 8, side: int = SIDE
) -> Image:
    """The images at these places, row by row, enlarged or shrunk to `side` pixels."""
    from PIL import Image, ImageDraw

    if examples.kind != "images":
        raise DataError(f"{examples.name}: a grid is of images; these are features of shape {examples.shape}")
    if not len(places):
        raise ValueError("places is empty: there is nothing to show")
    if captions is not None and len(captions) != len(places):
        raise ValueError(f"captions has {len(captions)} entries for {len(places)} places: one each is wanted")
    rows = -(-len(places) // columns)
    wide, high = side + GAP, side + GAP + (LINE if captions else 0)
    sheet = Image.new("RGB", (GAP + wide * min(columns, len(places)), GAP + high * rows), "white")
    draw = ImageDraw.Draw(sheet)
    for i, place in enumerate(places):
        left, top = GAP + wide * (i % columns), GAP + high * (i // columns)
        sheet.paste(_picture(examples, int(place)).resize((side, side), Image.Resampling.NEAREST), (left, top))
        if captions is not None:
            draw.text((left, top + side), captions[i].encode("latin-1", "replace").decode("latin-1")[:11], fill="black")
    return sheet


def _picture(examples: Examples, place: int) -> Image:
    from mohs.audit.thumbnails import picture

    return picture(examples.inputs[torch.tensor([place])][0]).convert("RGB")
