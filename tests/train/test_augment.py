"""Augmentation: against obvious loops over images, and as what a graph captures."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import interpolate, pad

from mohs.train.augment import (
    AUGMENTATIONS,
    Sequential,
    create_augment,
    crop_flip,
    cutout,
    gaussian_noise,
    rand_augment,
    random_resized_crop,
    translate,
)
from mohs.train.warp import resized_crop, shifted


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def images(n: int = 6, channels: int = 3, height: int = 7, width: int = 9, *, floating: bool = False) -> Tensor:
    x = torch.randint(0, 256, (n, channels, height, width), dtype=torch.uint8, generator=generator(n))
    return x.float() / 255 if floating else x


def shifted_by_loop(x: Tensor, down: Tensor, right: Tensor, flip: Tensor, mode: str) -> Tensor:
    """Pad, cut out, mirror: one image at a time."""
    reach = int(max(down.abs().max(), right.abs().max()))
    height, width = x.shape[2:]
    done = []
    for i in range(len(x)):
        padded = pad(x[i : i + 1].float(), (reach,) * 4, mode=mode)
        top, left = reach - int(down[i]), reach - int(right[i])
        cut = padded[..., top : top + height, left : left + width]
        done.append(cut.flip(3) if flip[i] else cut)
    return torch.cat(done).to(x.dtype)


@settings(deadline=None, derandomize=True, max_examples=40)
@given(st.integers(0, 6), st.sampled_from(["constant", "reflect"]), st.booleans(), st.integers(0, 1000))
def test_shifts_match_a_loop(reach: int, mode: str, floating: bool, seed: int) -> None:
    x = images(floating=floating)
    augment = crop_flip(padding=reach, mode=mode)
    drawn = augment.draw(len(x), generator(seed), x.shape[1:])
    got = augment.apply(x, *drawn)
    assert got.dtype == x.dtype
    assert torch.equal(got, shifted_by_loop(x, *drawn, mode))


def test_shifts_cover_their_range_and_no_more() -> None:
    down, right, flip = crop_flip(padding=4).draw(2000, generator(), (3, 32, 32))
    for moved in (down, right):
        assert sorted(set(moved.tolist())) == list(range(-4, 5))
    assert 0.45 < float(flip.float().mean()) < 0.55
    assert not crop_flip(flip=False).draw(100, generator(), (3, 32, 32))[2].any()
    assert sorted(set(translate().draw(500, generator(), (1, 28, 28))[0].tolist())) == [-2, -1, 0, 1, 2]


def test_translate_is_the_shift_with_mirrored_edges() -> None:
    x = images(8, 1, 6, 6)
    down, right = translate(pixels=2).draw(8, generator(), x.shape[1:])
    got = translate(pixels=2).apply(x, down, right)
    assert torch.equal(got, shifted_by_loop(x, down, right, torch.zeros(8, dtype=torch.bool), "reflect"))
    one = torch.arange(4, dtype=torch.uint8).view(1, 1, 1, 4).expand(1, 1, 4, 4)
    assert shifted(one, torch.tensor([0]), torch.tensor([2]), mode="reflect")[0, 0, 0].tolist() == [2, 1, 0, 1]
    assert shifted(one, torch.tensor([0]), torch.tensor([2]))[0, 0, 0].tolist() == [0, 0, 0, 1]


def test_noise_is_noise_on_pixels_of_0_to_1() -> None:
    x = images(50, 3, 8, 8)
    got = gaussian_noise(sd=0.15)(x, generator())
    noise = got - x.float() / 255
    assert got.dtype == torch.float32
    assert float(noise.std()) == pytest.approx(0.15, rel=0.02)
    assert abs(float(noise.mean())) < 0.01
    features = torch.randn(20, 5, generator=generator())
    assert gaussian_noise(sd=0.1)(features, generator()).shape == (20, 5)
    assert torch.equal(gaussian_noise(sd=0)(features, generator()), features)


def resized_by_loop(x: Tensor, left: Tensor, top: Tensor, width: Tensor, height: Tensor) -> Tensor:
    """Every pixel of every image by hand: the four pixels around the place it comes from."""
    out = torch.zeros_like(x)
    _, _, rows, columns = x.shape
    for n in range(len(x)):
        for i in range(rows):
            for j in range(columns):
                v = min(max((float(top[n]) + float(height[n]) * (i + 0.5) / rows) * rows - 0.5, 0), rows - 1)
                u = min(max((float(left[n]) + float(width[n]) * (j + 0.5) / columns) * columns - 0.5, 0), columns - 1)
                i0, j0 = int(v), int(u)
                i1, j1 = min(i0 + 1, rows - 1), min(j0 + 1, columns - 1)
                a, b = v - i0, u - j0
                above = (1 - b) * x[n, :, i0, j0] + b * x[n, :, i0, j1]
                below = (1 - b) * x[n, :, i1, j0] + b * x[n, :, i1, j1]
                out[n, :, i, j] = (1 - a) * above + a * below
    return out


def test_resized_crops_match_a_loop() -> None:
    x = images(floating=True)
    augment = random_resized_crop()
    left, top, width, height, flip = augment.draw(len(x), generator(3), x.shape[1:])
    expected = resized_by_loop(x, left, top, width, height)
    expected[flip] = expected[flip].flip(3)
    got = augment.apply(x, left, top, width, height, flip)
    assert flip.any()
    assert not flip.all()
    assert torch.allclose(got, expected, atol=1e-5)
    assert torch.allclose(augment.apply((x * 255).round().to(torch.uint8), left, top, width, height, flip), got, atol=1e-4)


def test_a_quarter_crop_matches_interpolate_in_the_interior() -> None:
    x = images(2, 1, 8, 8, floating=True)
    half, zero = torch.full((2,), 0.5), torch.zeros(2)
    expected = interpolate(x[:, :, :4, :4], size=(8, 8), mode="bilinear", align_corners=False)
    got = resized_crop(x, zero, zero, half, half)
    assert torch.allclose(got[:, :, :7, :7], expected[:, :, :7, :7], atol=1e-6)  # the last rows see beyond the box
    assert torch.allclose(resized_crop(x, zero, zero, 2 * half, 2 * half), x, atol=1e-6)


def test_boxes_stay_inside_and_keep_scale_and_ratio() -> None:
    left, top, width, height, _ = random_resized_crop(scale=(0.2, 0.5), ratio=(0.5, 2)).draw(3000, generator(), (3, 20, 40))
    area, ratio = width * height, (40 * width) / (20 * height)
    assert (left >= 0).all()
    assert (top >= 0).all()
    assert (left + width <= 1 + 1e-6).all()
    assert (top + height <= 1 + 1e-6).all()
    whole = height < 1  # those that were not cut to the image
    assert 0.2 - 1e-5 < float(area[whole].min()) < 0.22
    assert 0.48 < float(area[whole].max()) < 0.5 + 1e-5
    assert float(ratio.min()) > 0.5 - 1e-4
    assert float(ratio[whole].max()) < 2 + 1e-4


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_draw_and_apply_equal_the_call_and_depend_only_on_the_generator(name: str) -> None:
    augment: Any = create_augment([name])
    x = images(8, 3, 16, 16)
    drawn = augment.draw(8, generator(5), x.shape[1:])
    assert len(drawn) == augment.draws
    assert all(len(numbers) == 8 for numbers in drawn)
    first = augment(x, generator(5))
    torch.rand(3)
    assert torch.equal(first, augment(x, generator(5)))
    assert torch.equal(first, augment.apply(x, *drawn))
    if name not in ("mixup", "corrupt"):  # whose partners are those of the process
        half = augment.apply(x[::2], *(numbers[::2] for numbers in drawn))
        assert torch.equal(half, first[::2])  # a process may take every second row
    assert torch.equal(x, images(8, 3, 16, 16))
    assert AUGMENTATIONS[name].purpose  # type: ignore[attr-defined]
    assert name == "none" or not torch.equal(first.float(), x.float())


@pytest.mark.parametrize("name", [name for name in AUGMENTATIONS if name != "none"])
def test_apply_is_traced_without_a_graph_break(name: str) -> None:
    augment, x = create_augment([name]), images(4, 3, 16, 16)
    drawn = augment.draw(4, generator(), x.shape[1:])
    traced = torch.compile(augment.apply, fullgraph=True, backend="eager")
    assert torch.equal(traced(x, *drawn), augment.apply(x, *drawn))


def test_augmentations_in_order() -> None:
    both = create_augment(["translate:pixels=1", {"name": "gaussian_noise", "sd": 0.1}])
    x = images(5, 1, 8, 8)
    down, right, noise = both.draw(5, generator(), x.shape[1:])
    assert torch.equal(both.apply(x, down, right, noise), translate(pixels=1).apply(x, down, right).float() / 255 + 0.1 * noise)
    assert create_augment([]) == Sequential(())
    assert create_augment([])(x, generator()) is x
    assert create_augment("translate") == create_augment(["translate"]) == create_augment({"name": "translate"})


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("spin", "unknown augmentation 'spin'; known: none, crop_flip, translate, gaussian_noise, random_resized_crop"),
        ("crop_flip:pad=1", "crop_flip has no field 'pad'; its fields: padding, mode, flip"),
        ("crop_flip:padding=-1", "padding must be an integer of at least 0, got -1"),
        ("crop_flip:mode=wrap", "mode must be one of constant, reflect, got 'wrap'"),
        ("translate:pixels=1.5", "translate: pixels must be an integer, got 1.5"),
        ("gaussian_noise:sd=-1", "sd must be at least 0, got -1"),
        (
            {"name": "random_resized_crop", "scale": [0.5, 0.1]},
            r"scale must be two positive numbers, the smaller first, got \[0.5, 0.1\]",
        ),
        ({"name": "random_resized_crop", "scale": [0.5, 2]}, "scale must be between 0 and 1, got 2"),
        ("random_resized_crop:ratio=2", "random_resized_crop: ratio must be a list of numbers, got 2"),
    ],
)
def test_bad_augmentations_are_named(spec: str | dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        create_augment([spec])


@pytest.mark.parametrize("name", ["crop_flip", "translate", "random_resized_crop"])
def test_features_and_tiny_images_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=rf"{name} takes images \(C, H, W\), but inputs have shape \(7,\): leave it out"):
        create_augment([name]).draw(2, generator(), (7,))
    if name != "random_resized_crop":
        with pytest.raises(ValueError, match=rf"{name} reaches . pixels beyond an image of 2×2: choose less than its side"):
            create_augment([name]).draw(2, generator(), (1, 2, 2))


@pytest.mark.parametrize("name", ["rand_augment", "cutout"])
def test_strong_augmentation_leaves_the_others_as_they_are(name: str) -> None:
    x = images(64, height=16, width=16, floating=True)
    got = create_augment(f"{name}:share=0.5")(x, generator())
    changed = ((got - x).abs() > 1e-4).flatten(1).any(1)
    assert got.shape == x.shape
    assert float(got.min()) >= 0
    assert float(got.max()) <= 1
    assert 16 < int(changed.sum()) < 48
    torch.testing.assert_close(create_augment(f"{name}:share=0")(x, generator()), x, atol=1e-6, rtol=0)


def strengths(**given: float) -> Tensor:
    """Strengths (1, 12) of these operations; the others are off."""
    warps, colors = "turn across down right below", "brightness contrast saturation sharpness posterize solarize autocontrast"
    return torch.tensor([[float(given.get(name, 0)) for name in f"{warps} {colors}".split()]])


def test_rand_augment_warps_without_blurring() -> None:
    x = torch.zeros(1, 1, 17, 17)
    x[0, 0, 8, 14] = 1  # to the right of the center
    places = [("turn", 1, (5, 13)), ("turn", -1, (11, 13)), ("right", 1 / 3, (8, 12)), ("across", 1, (8, 14))]
    for name, strength, place in places:
        got = rand_augment().apply(x, strengths(**{name: strength}))
        assert divmod(int(got.argmax()), 17) == place, name
        assert set(got.flatten().tolist()) == {0.0, 1.0}, name


def test_rand_augment_recolors() -> None:
    x = torch.tensor([0.2, 0.4, 0.6, 0.8]).view(1, 1, 2, 2)
    for change, want in (
        ({"brightness": -0.5}, x * 0.55),
        ({"contrast": -1.0}, 0.5 + 0.1 * (x - 0.5)),
        ({"solarize": 0.5}, torch.tensor([0.2, 0.4, 0.4, 0.2]).view_as(x)),
        ({"posterize": 1.0}, torch.tensor([1, 3, 4, 6]).view_as(x) / 8),
        ({"autocontrast": 1.0}, (x - 0.2) / 0.6),
        ({"saturation": 1.0}, x),  # a gray image has none
    ):
        torch.testing.assert_close(rand_augment().apply(x, strengths(**change)), want, atol=1e-5, rtol=0)
    drawn = rand_augment(count=3).draw(50, generator(), (1, 8, 8))[0]
    assert drawn.shape == (50, 12)
    assert ((drawn != 0).sum(1) == 3).all()


def test_cutout_covers_a_square_with_the_mean() -> None:
    x = images(1, 1, 10, 10, floating=True)
    got = cutout(side=0.4).apply(x, torch.tensor([0.5]), torch.tensor([0.5]))
    assert torch.equal((got != x)[0, 0].nonzero().amin(0), torch.tensor([3, 3]))
    assert int((got != x).sum()) == 16
    torch.testing.assert_close(got[0, 0, 3:7, 3:7], x.mean().expand(4, 4))


def test_mixup_mixes_inputs_and_labels_alike() -> None:
    x, targets = torch.eye(6).view(6, 6), torch.eye(6)
    both = create_augment(["gaussian_noise:sd=0", "mixup:alpha=2"])
    drawn = both.draw(6, generator(), (6,))
    assert float(drawn[1].min()) >= 0.5
    mixed = both.apply(x, *drawn)
    assert both.mixes
    assert not create_augment("translate").mixes
    torch.testing.assert_close(mixed, both.mix_targets(targets, *drawn))
    torch.testing.assert_close(mixed.sum(1), torch.ones(6))
    assert torch.equal(both.mix_targets(targets.unsqueeze(1).repeat(1, 2, 1), *drawn)[:, 0], both.mix_targets(targets, *drawn))


def test_corrupted_features_come_from_the_mirrored_place_of_the_batch() -> None:
    x = torch.arange(40.0).view(4, 10)
    augment = create_augment("corrupt:share=0.3")
    (taken,) = augment.draw(4, generator(), (10,))
    got = augment.apply(x, taken)
    assert torch.equal(got[~taken], x[~taken])
    assert torch.equal(got[taken], x.flip(0)[taken])
    assert 0.25 < augment.draw(400, generator(), (50,))[0].float().mean() < 0.35
    with pytest.raises(ValueError, match="share must be between 0 and 1, got 2"):
        create_augment("corrupt:share=2")
