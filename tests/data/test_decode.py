from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mohs.data.decode import CAP, Header, as_size, choose_mode, choose_size, header, pixels
from mohs.data.image_stores import formats


def test_images_stay_gray_only_if_all_are_gray() -> None:
    gray, color = Header(8, 8, True), Header(8, 8, False)
    assert choose_mode([gray, gray]) == "L"
    assert choose_mode([gray, color]) == "RGB"
    assert header(Image.new("L", (4, 6))) == Header(6, 4, True)


@pytest.mark.parametrize(
    ("sizes", "wanted", "size", "said"),
    [
        ([(28, 20), (28, 20)], None, (28, 20), False),
        ([(96, 96), (96, 96)], None, (96, 96), False),
        ([(96, 128), (96, 128)], None, (96, 96), True),
        ([(10, 30), (20, 60), (40, 50)], None, (20, 20), True),
        ([(900, 800), (700, 1000)], None, (CAP, CAP), True),
        ([(900, 800), (700, 1000)], 32, (32, 32), False),
        ([(9, 8)], (32, 16), (32, 16), False),
    ],
)
def test_the_size_is_kept_chosen_or_given(
    sizes: list[tuple[int, int]], wanted: object, size: tuple[int, int], said: bool
) -> None:
    found, notes = choose_size([Header(h, w, False) for h, w in sizes], wanted)  # type: ignore[arg-type]
    assert found == size
    assert bool(notes) == said


@pytest.mark.parametrize("wrong", [0, -3, (3,), (3, 0), 2.5, (1, 2, 3), 65_537, (65_537, 8)])
def test_invalid_sizes(wrong: object) -> None:
    with pytest.raises(ValueError, match=r"image_size \(--image-size\) must be a number of pixels or"):
        as_size(wrong)  # type: ignore[arg-type]


def test_the_middle_is_kept() -> None:
    wide = np.zeros((10, 30, 3), np.uint8)
    wide[:, 10:20] = 255
    assert pixels(Image.fromarray(wide), "RGB", (10, 10)).min() == 255


def test_transparent_pixels_are_white_and_palettes_are_read() -> None:
    clear = Image.new("RGBA", (2, 2), (10, 20, 30, 0))
    assert pixels(clear, "RGB", (2, 2)).min() == 255
    palette = Image.new("P", (2, 2), 0)
    palette.putpalette([9, 8, 7] * 256)
    assert pixels(palette, "RGB", (2, 2))[:, 0, 0].tolist() == [9, 8, 7]
    palette.info["transparency"] = 0
    assert pixels(palette, "RGB", (2, 2)).min() == 255


def test_sixteen_bits_are_scaled_not_cut_off() -> None:
    levels = np.array([[0, 257, 32768, 65535]], np.uint16)
    assert pixels(Image.fromarray(levels), "L", (1, 4))[0, 0].tolist() == [0, 1, 128, 255]
    with pytest.raises(ValueError, match="no known range"):
        pixels(Image.new("F", (2, 2)), "L", (2, 2))
    with pytest.raises(ValueError, match="gray levels outside"):
        pixels(Image.new("I", (2, 2), 70_000), "L", (2, 2))


def test_images_are_rotated_by_exif_orientation(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (8, 4)).save(tmp_path / "1.jpg", exif=exif)
    with Image.open(tmp_path / "1.jpg") as image:
        assert header(image) == Header(8, 4, False)
        assert pixels(image, "RGB", (8, 4)).shape == (3, 8, 4)


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
def test_a_large_jpeg_is_decoded_at_a_fraction_of_its_size(tmp_path: Path, mode: str) -> None:
    waves = np.sin(np.arange(900)[:, None] / 40) + np.cos(np.arange(1200) / 60)
    whole = Image.fromarray((60 * waves + 128).astype(np.uint8))
    whole.convert(mode).save(tmp_path / "1.jpg", quality=95)
    with Image.open(tmp_path / "1.jpg") as image:
        small = pixels(image, "L", (40, 60))
        assert image.size == (300, 225)  # a quarter: an eighth would be less than twice the size
    with Image.open(tmp_path / "1.jpg") as image:
        image.load()
        assert np.abs(small.astype(int) - pixels(image, "L", (40, 60))).max() <= 2


def test_no_format_starts_another_program() -> None:
    assert "EPS" not in formats()
    assert {"PNG", "JPEG", "WEBP", "GIF"} <= set(formats())
