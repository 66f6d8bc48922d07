"""Domains: the same classes under other conditions; pairs of source and target, and leave-one-domain-out.

    mnist->usps                      two data sets that share classes
    mnist->mnist:invert              one data set and a shifted copy of another part of it
    cifar10->cifar10:contrast=0.3    with the level of the shift; several shifts are applied in order

Shifts: invert (1 − x), rotate (degrees; corners become 0), and the degradations contrast, noise and blur. They are
synthetic, and easier to undo than differences between real domains: report them as such. Both sides of a pair get one
shape, the larger of the two sizes, with gray repeated to color. Where one data set is on both sides, each side gets half of
its training examples, so that no image is in both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mohs._core.errors import DataError
from mohs._core.validation import check_between
from mohs.data.degrade import contrast, gaussian_blur, uniform_noise
from mohs.data.examples import Data, Examples, joined
from mohs.data.open_single import open_single
from mohs.data.read_options import ARROW
from mohs.data.resize import resize_images
from mohs.data.split import split

SHOWN = 5
CHUNK = 8192  # number of images rotated at a time
UNKNOWN = -1  # the label of an unlabeled example


def invert(images: Tensor, level: float, generator: torch.Generator) -> Tensor:
    """x + level (1 − 2x); level 1 inverts completely, 0 not at all."""
    check_between("invert", level, 0, 1)
    whole = images.dtype == torch.uint8
    x = images.float() / (255 if whole else 1)
    x = x + level * (1 - 2 * x)
    return (x * 255).round().to(torch.uint8) if whole else x.to(images.dtype)


def rotate(images: Tensor, degrees: float, generator: torch.Generator) -> Tensor:
    """Rotated about the center, counterclockwise, by bilinear interpolation; corners are filled with 0."""
    from torch.nn.functional import affine_grid, grid_sample

    angle = torch.deg2rad(torch.tensor(float(degrees)))
    turn = torch.stack([angle.cos(), -angle.sin(), angle.new_zeros(()), angle.sin(), angle.cos(), angle.new_zeros(())]).view(2, 3)
    height, width = images.shape[-2:]
    turn = turn * torch.tensor([[1, height / width, 1], [width / height, 1, 1]])  # in pixels, where the sides differ
    found = torch.empty_like(images)
    for start in range(0, len(images), CHUNK):
        part = images[start : start + CHUNK].float()
        grid = affine_grid(turn.expand(len(part), 2, 3), list(part.shape), align_corners=False)
        turned = grid_sample(part, grid, mode="bilinear", align_corners=False)
        found[start : start + CHUNK] = turned.round().to(torch.uint8) if images.dtype == torch.uint8 else turned
    return found


Shift = Callable[[Tensor, float, torch.Generator], Tensor]
SHIFTS: dict[str, tuple[Shift, float]] = {  # with their default levels
    "invert": (invert, 1.0),
    "rotate": (rotate, 45.0),
    "contrast": (lambda x, level, generator: contrast(x, level=level), 0.3),
    "noise": (lambda x, width, generator: uniform_noise(x, width=width, generator=generator), 0.4),
    "blur": (lambda x, sigma, generator: gaussian_blur(x, sigma=sigma), 1.5),
}


def open_pair(pair: str, *, seed: int = 0, **how: Any) -> tuple[Data, Data]:
    """Source and target of a pair "SOURCE->TARGET", with one shape and the source's classes; how: options of `open_data`."""
    sides = [side.strip() for side in pair.split(ARROW)]
    if len(sides) != 2 or not all(sides):
        raise ValueError(f"a pair is written SOURCE{ARROW}TARGET, as mnist{ARROW}usps or mnist{ARROW}mnist:invert; got {pair!r}")
    names = [parse_domain(side)[0] for side in sides]
    if names[0] != names[1]:
        return paired(*(open_domain(side, seed=seed, **how) for side in sides))
    whole = open_single(names[0], **how)
    halves = split(whole.train, 0.5, seed)
    found = [shifted_data(Data(half, whole.val, whole.test), side, seed) for half, side in zip(halves, sides, strict=True)]
    return paired(*found)


def open_domain(word: str, *, seed: int = 0, **how: Any) -> Data:
    """The data of one side of a pair: "mnist", "mnist:rotate=30", "pacs:photo", a folder."""
    return shifted_data(open_single(parse_domain(word)[0], **how), word, seed)


def shifted_data(data: Data, word: str, seed: int) -> Data:
    """All splits with the shifts that the word names, each with its own random seed."""
    return Data(**{part: shifted(examples, word, seed + i) for i, (part, examples) in enumerate(data.splits.items())})


def parse_domain(word: str) -> tuple[str, list[tuple[str, float]]]:
    """ "mnist:contrast=0.5:noise" -> ("mnist", [("contrast", .5), ("noise", .4)]); other parts stay with the name."""
    name, shifts = word, list[tuple[str, float]]()
    while True:
        rest, colon, last = name.rpartition(":")
        shift, equals, level = last.partition("=")
        if not colon or (shift not in SHIFTS and not equals):
            return name, shifts
        if shift not in SHIFTS:
            raise ValueError(f"{word!r}: unknown shift {shift!r}; known: {', '.join(SHIFTS)}")
        try:
            shifts.insert(0, (shift, float(level) if equals else SHIFTS[shift][1]))
        except ValueError:
            raise ValueError(f"{word!r}: {shift} needs a number, got {level!r}") from None
        name = rest


def shifted(examples: Examples, word: str, seed: int) -> Examples:
    """The examples with the shifts that the word names."""
    _, shifts = parse_domain(word)
    if not shifts:
        return examples
    if examples.kind != "images" or not isinstance(examples.inputs, Tensor):
        raise DataError(f"{examples.name}: shifts need images in memory; these are {examples.kind} of shape {examples.shape}")
    x, generator = examples.inputs, torch.Generator().manual_seed(seed)
    for shift, level in shifts:
        x = SHIFTS[shift][0](x, level, generator)
    return replace(examples, inputs=x, name=word)


def paired(source: Data, target: Data) -> tuple[Data, Data]:
    """Both with one shape, and the target with the source's classes."""
    shape = shared_shape([source.train, target.train])
    found = [Data(**{name: shaped(part, shape) for name, part in data.splits.items()}) for data in (source, target)]
    classes, like = source.classes, source.name
    return found[0], Data(**{name: aligned(part, classes, like=like) for name, part in found[1].splits.items()})


def shared_shape(parts: Sequence[Examples]) -> tuple[int, ...]:
    """The largest height and width of images, and color where one set has it; features must agree in shape."""
    shapes = [part.shape for part in parts]
    if len(set(shapes)) == 1:
        return shapes[0]
    if any(len(shape) != 3 for shape in shapes) or any(shape[0] not in (1, 3) for shape in shapes):
        shown = ", ".join(f"{part.name} {part.shape}" for part in parts)
        raise DataError(f"inputs have different shapes: {shown}; only images of 1 or 3 channels can be brought to one shape")
    return tuple(max(shape[i] for shape in shapes) for i in range(3))


def shaped(examples: Examples, shape: tuple[int, ...]) -> Examples:
    """Images resized to this shape, gray repeated to color or color averaged to gray; other inputs must have this shape."""
    if examples.shape == shape:
        return examples
    if len(shape) != 3 or examples.kind != "images":
        raise DataError(f"{examples.name} has {examples.kind} of shape {examples.shape}, not {shape}")
    if not isinstance(examples.inputs, Tensor):
        raise DataError(
            f"{examples.name}: images of {examples.shape[1:]} are not in memory: open them with image_size={shape[1:]} "
            "(--image-size)"
        )
    x = resize_images(examples.inputs, (shape[1], shape[2]))
    if shape[0] < x.shape[1]:
        mean = x.float().mean(1, keepdim=True)
        x = mean.round().to(torch.uint8) if x.dtype == torch.uint8 else mean
    return replace(examples, inputs=x.expand(-1, shape[0], -1, -1).contiguous())


def aligned(target: Examples, classes: Sequence[Any], *, like: str = "the source") -> Examples:
    """The target with labels as indices of these classes, matched by name ("3" is 3); other classes are an error.

    The target may lack classes. Negative labels, which are unknown, stay.
    """
    if list(target.classes) == list(classes):
        return target
    number = {str(name): i for i, name in enumerate(classes)}
    present = torch.bincount(target.labels[target.labels >= 0], minlength=len(target.classes)) > 0
    other = [
        repr(name) for name, there in zip(target.classes, present.tolist(), strict=True) if there and str(name) not in number
    ]
    if other:
        shown = ", ".join(other[:SHOWN]) + (", ..." if len(other) > SHOWN else "")
        raise DataError(f"{target.name} has classes that {like} does not have: {shown}; remove them, or rename them as in {like}")
    to = torch.tensor([number.get(str(name), UNKNOWN) for name in target.classes] + [UNKNOWN])
    truth = None if target.truth is None else to[target.truth]
    return replace(target, labels=to[target.labels.clamp(min=-1)], classes=list(classes), truth=truth)


def unlabeled(inputs: Any, classes: Sequence[Any], *, name: str = "target", paths: Sequence[str] | None = None) -> Examples:
    """Unlabeled inputs as examples of these classes: arrays (N, ...), or a tensor of images (N, C, H, W)."""
    from mohs.data.readers.arrays import as_inputs

    x, notes = as_inputs(inputs, name=name)
    return Examples(x, torch.full((len(x),), UNKNOWN), list(classes), name=name, paths=paths, notes=notes)


def open_domains(words: str | Path | Sequence[str], **how: Any) -> dict[str, Examples]:
    """Domain -> its examples, all of one shape and with the first one's classes: "pacs", names and paths, or a folder of domains.

    A folder of domains holds one folder per domain, each with one folder per class. Names may be joined: "mnist+usps". The
    examples of a data set that is named several times, with different shifts, are divided among them.
    """
    if isinstance(words, str) and "+" in words and not Path(words).exists():
        words = words.split("+")
    if words == "pacs":
        found = {one: open_single(f"pacs:{one}", **how).train for one in _pacs_domains()}
    elif isinstance(words, str | Path):
        inner = sorted(one for one in Path(words).glob("*") if one.is_dir() and not one.name.startswith("."))
        if len(inner) < 2:
            raise DataError(f"{words}: expected at least two domains, each a folder of class folders")
        found = {one.name: open_single(one, **how).train for one in inner}
    else:
        found = _divided(words, **how)
    first = next(iter(found.values()))
    shape = shared_shape(list(found.values()))
    return {name: shaped(aligned(part, first.classes, like=first.name), shape) for name, part in found.items()}


def _divided(words: Sequence[str], *, seed: int = 0, **how: Any) -> dict[str, Examples]:
    """Training examples of each word; words for the same data set get disjoint parts."""
    names = [parse_domain(word)[0] for word in words]
    rest: dict[str, Examples] = {}
    found = {}
    for i, (word, name) in enumerate(zip(words, names, strict=True)):
        own, others = rest.get(name) or open_single(name, **how).train, names[i + 1 :].count(name)
        if others:
            rest[name], own = split(own, 1 / (others + 1), seed)
        found[word] = shifted(own, word, seed)
    return found


def leave_one_out(domains: Mapping[str, Examples], held: str) -> tuple[Examples, Examples]:
    """All other domains as one set, and the held-out domain."""
    if held not in domains:
        raise ValueError(f"no domain {held!r} to leave out; known: {', '.join(domains)}")
    others = [part for name, part in domains.items() if name != held]
    if not others:
        raise DataError(f"{held} is the only domain: at least two are needed")
    return joined(others, name="+".join(name for name in domains if name != held)), domains[held]


def _pacs_domains() -> tuple[str, ...]:
    from mohs.data.readers.pacs import DOMAINS

    return DOMAINS
