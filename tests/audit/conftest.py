"""Small data that an examination gets through in a second or two."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from mohs.data.examples import Data, Examples
from mohs.data.noise import add_noise
from mohs.data.readers.digits import digits


@pytest.fixture(scope="session")
def few_images() -> Examples:
    """240 digits, a tenth of their labels wrong."""
    return add_noise(digits().train.take(torch.arange(240)), {"name": "symmetric", "rate": 0.1}, seed=0)


@pytest.fixture(scope="session")
def few_features(few_images: Examples) -> Data:
    """The same as rows of pixels."""
    assert isinstance(few_images.inputs, torch.Tensor)
    return Data(replace(few_images, inputs=few_images.inputs.flatten(1).float() / 255))
