from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from mohs._core.errors import DataError
from mohs.data.decode import pixels
from mohs.data.open_data import open_data
from mohs.data.resize import resize_images


@pytest.mark.parametrize("size", [(24, 20), (6, 5), (12, 6), (6, 10), (12, 4)])  # crops that fall on pixels
def test_images_in_memory_are_scaled_like_files(size: tuple[int, int]) -> None:
    across, down = np.meshgrid(np.linspace(0, 3, 10), np.linspace(0, 2, 12))
    smooth = (127 + 120 * np.sin(across) * np.cos(down)).astype(np.uint8)
    ours = resize_images(torch.from_numpy(smooth)[None, None], size)[0].numpy()
    theirs = pixels(Image.fromarray(smooth), "L", size)
    assert ours.shape == theirs.shape
    assert np.abs(ours.astype(int) - theirs).max() <= 1


def test_many_images_are_scaled_equally_and_keep_their_type() -> None:
    images = torch.randint(0, 256, (5, 3, 6, 6), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    every = resize_images(images, (9, 9))
    assert torch.equal(every, torch.cat([resize_images(one[None], (9, 9)) for one in images]))
    assert resize_images(images.float() / 255, (3, 3)).dtype == torch.float32
    assert resize_images(images, (6, 6)) is images


def test_image_size_applies_to_images_and_not_to_features() -> None:
    assert open_data(image_size=16).train.shape == (1, 16, 16)
    with pytest.raises(DataError, match=r"data: image_size \(--image-size\) is for images; these are features of shape \(2,\)"):
        open_data((np.zeros((2, 2)), [0, 1]), image_size=4)
    with pytest.raises(ValueError, match=r"image_size \(--image-size\) must be a number of pixels"):
        open_data("nothing", image_size=0)
    with pytest.raises(ValueError, match="data is empty; give a folder"):
        open_data(" ")
    with pytest.raises(ValueError, match="has no labels: give one label per example"):
        open_data((np.zeros((2, 2)), None))
