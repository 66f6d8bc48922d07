from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter

from mohs.data.degrade import DEGRADATIONS, contrast, create_degradation, gaussian_blur, uniform_noise


def images(dtype: torch.dtype = torch.uint8) -> torch.Tensor:
    x = torch.randint(0, 256, (3, 3, 9, 7), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    return x if dtype == torch.uint8 else (x.float() / 255).to(dtype)


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(7)


def test_contrast_is_the_formula() -> None:
    x = images(torch.float32)
    torch.testing.assert_close(contrast(x, level=0.3), x * 0.3 + 0.35)
    assert torch.equal(contrast(images(), level=1.0), images())
    assert contrast(images(), level=0.0).unique().tolist() == [128]


def test_noise_stays_within_its_width_and_is_seeded() -> None:
    x = torch.full((2, 3, 40, 40), 0.5)
    noisy = uniform_noise(x, width=0.2, generator=seeded())
    assert torch.equal(noisy, uniform_noise(x, width=0.2, generator=seeded()))
    assert float((noisy - x).abs().max()) <= 0.2
    assert float((noisy - x).std()) == pytest.approx(0.2 / 3**0.5, rel=0.03)
    assert float(uniform_noise(images(torch.float32), width=0.4, generator=seeded()).min()) >= 0
    assert torch.equal(uniform_noise(images(), width=0.0, generator=seeded()), images())
    low = uniform_noise(images(torch.float32), width=0.0, generator=seeded(), contrast=0.3)
    torch.testing.assert_close(low, contrast(images(torch.float32), level=0.3))


@pytest.mark.parametrize("sigma", [0.5, 1.0, 4.0])
def test_blur_is_a_normal_density_by_rows_and_columns(sigma: float) -> None:
    x = images(torch.float64)
    expected = np.stack(
        [[gaussian_filter(c, sigma, mode="nearest", radius=max(1, int(np.ceil(4 * sigma)))) for c in one] for one in x.numpy()]
    )
    np.testing.assert_allclose(gaussian_blur(x, sigma=sigma).numpy(), expected, atol=1e-7)
    assert torch.equal(gaussian_blur(x, sigma=0), x)


@pytest.mark.parametrize("name", DEGRADATIONS)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float16])
def test_images_round_trip(name: str, dtype: torch.dtype) -> None:
    field = {"contrast": "level", "noise": "width", "blur": "sigma"}[name]
    worse = create_degradation(name, **{field: 0.3})(images(dtype), seeded())
    assert worse.dtype == dtype
    assert worse.shape == images().shape


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="unknown degradation 'fog'; known: contrast, noise, blur"):
        create_degradation("fog")
    with pytest.raises(ValueError, match="level must be between 0 and 1, got 2"):
        create_degradation("contrast", level=2)
    with pytest.raises(ValueError, match="noise needs a generator"):
        create_degradation("noise", width=0.1)(images())
    with pytest.raises(ValueError, match=r"images must have shape \(N, C, H, W\), got \(9, 7\)"):
        contrast(images()[0, 0], level=0.5)
    with pytest.raises(ValueError, match=r"images must be uint8, or floats from 0 to 1, got torch\.int64"):
        gaussian_blur(images().long(), sigma=1)
    with pytest.raises(ValueError, match="width must be between 0 and 1, got 3"):
        uniform_noise(images(), width=3, generator=seeded())
    with pytest.raises(ValueError, match="sigma must be at least 0, got -1"):
        gaussian_blur(images(), sigma=-1)
