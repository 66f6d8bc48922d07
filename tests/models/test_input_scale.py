"""The scale of examples, against means and deviations of everything at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from mohs._core.errors import DataError
from mohs.data.examples import Examples
from mohs.models import input_scale, scale_of


def examples(inputs: object) -> Examples:
    return Examples(inputs, torch.zeros(len(inputs), dtype=torch.long), ["a", "b"], name="some.npz")  # type: ignore[arg-type]


@pytest.mark.parametrize("chunk", [1, 700, 10**9])
def test_image_statistics_per_channel_for_any_chunk_size(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_scale, "CHUNK", chunk)
    x = torch.randint(0, 256, (23, 3, 5, 6), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    found = scale_of(examples(x))
    values = x.double() / 255
    assert torch.allclose(found.mean.double(), values.mean((0, 2, 3)))
    assert torch.allclose(found.sd.double(), values.std((0, 2, 3), correction=0))
    scaled = found(x)
    assert torch.allclose(scaled.mean((0, 2, 3)), torch.zeros(3), atol=1e-5)
    assert torch.allclose(scaled.std((0, 2, 3), correction=0), torch.ones(3), atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_features_far_from_zero(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_scale, "CHUNK", 100)
    x = (torch.randn(500, 4, generator=torch.Generator().manual_seed(0)) + torch.tensor([0, 1, -50, 1000])).to(dtype)
    found = scale_of(examples(x))
    assert torch.allclose(found.mean, x.double().mean(0).float())
    assert torch.allclose(found.sd, x.double().std(0, correction=0).float(), rtol=1e-4)


def test_constant_features_have_scale_one() -> None:
    x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    x[:, 1], x[:, 2] = 0.1, 0.0
    found = scale_of(examples(x))
    assert found.sd[1:].tolist() == [1, 1]
    assert found(x)[:, 1:].abs().max() < 1e-6


class Read:
    """Images that are read when asked for, and which were."""

    def __init__(self, images: Tensor) -> None:
        self.images, self.asked = images, list[int]()

    def __len__(self) -> int:
        return len(self.images)

    @property
    def shape(self) -> Sequence[int]:
        return self.images.shape

    def __getitem__(self, places: Tensor) -> Tensor:
        self.asked += places.tolist()
        return self.images[places]


def test_files_are_sampled_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_scale, "READ", 4)
    inputs = Read(torch.randint(0, 256, (11, 1, 2, 2), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)))
    found = scale_of(examples(inputs))
    assert inputs.asked == [0, 2, 5, 8]
    assert torch.allclose(found.mean, (inputs.images[inputs.asked].float() / 255).mean().view(1))
    few = Read(inputs.images[:4])
    scale_of(examples(few))
    assert few.asked == [0, 1, 2, 3]


def test_what_has_no_scale_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_scale, "CHUNK", 12)
    with pytest.raises(DataError, match=r"some\.npz: no examples to take the scale of"):
        scale_of(examples(torch.zeros(0, 3)))
    x = torch.zeros(20, 4)
    for bad in (float("nan"), float("inf")):
        x[13, 2] = bad
        with pytest.raises(DataError, match=r"some\.npz: example 13 has an input that is not a finite number: remove it"):
            scale_of(examples(x))


def test_identical_inputs_are_evaluated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randint(0, 256, (4, 3, 2, 2), dtype=torch.uint8)
    examples = Examples(name="x", inputs=x, labels=torch.zeros(4, dtype=torch.long), classes=["a"])
    first = scale_of(examples)
    monkeypatch.setattr(input_scale, "mean_and_sd", lambda examples: (torch.zeros(3), torch.ones(3)))
    assert torch.equal(scale_of(dataclasses.replace(examples, name="y")).mean, first.mean)
    x[0] = 0
    assert torch.equal(scale_of(examples).mean, torch.zeros(3))  # changed since: found again
