"""Unsupervised segmentation: a small network groups the pixels of one image, without labels; every image has its own network.

    r = BN(conv 1×1(features))                                 responses (q, H, W); a pixel's segment is the largest of its q
    L = CE(r, argmax r) + μ Σ |differences of r between neighbors| / count + γ F(r)        F: ADR over the pixels

The images are synthetic scenes whose regions are known: Voronoi cells, each with its own color and grating, plus noise.

    miou       for every true region the largest intersection over union with any segment, averaged, as Kim et al. score it
    boundary   F score of the segments' boundaries against the regions', `NEAR` pixels apart or less
    segments   number of segments at the end

Kim, Kanezaki & Tanaka, "Unsupervised learning of image segmentation based on differentiable feature clustering" (IEEE TIP 2020),
eqs. 1 to 5; "Adaptive discriminative regularization for visual classification" (IJCV 2024), Figure 8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from mohs._core.device import choose_device
from mohs._core.validation import check_between, check_choice
from mohs.losses.adr import adr
from mohs.studies.systems.system import Numbers, System

NEAR = 2  # pixels between boundaries that count as the same
FEWEST = 3  # segments at which a training ends, as in Kim et al.'s code
SYNTHETIC = "synthetic"
CELLS = (3, 6)  # regions of a scene: at least, at most


@dataclass(frozen=True, kw_only=True)
class Segmentation(System):
    """Settings of one run: `images` scenes, a network for each.

    Attributes:
        data: "synthetic": scenes, the only kind with known regions here.
        images: Number of scenes; their seeds follow the run's.
        size: Height and width of a scene in pixels.
        noise: Standard deviation of the noise; colors lie between 0 and 1.
        width: Channels of the convolutions, and the largest number of segments.
        layers: Number of 3×3 convolutions.
        epochs: Number of steps of SGD with momentum 0.9; each sees the whole image.
        lr: Learning rate.
        continuity: μ, weight of the differences between neighbors.
        gamma: γ, weight of ADR.
        tau: τ of ADR.
    """

    data: str = SYNTHETIC
    images: int = 12
    size: int = 64
    noise: float = 0.15
    width: int = 48
    layers: int = 2
    epochs: int = 60
    lr: float = 0.1
    continuity: float = 1.0
    gamma: float = 0.0
    tau: int = 7

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("data", self.data, (SYNTHETIC,))
        for name in ("images", "width", "layers", "epochs", "tau"):
            check_between(name, getattr(self, name), 1)
        check_between("size", self.size, 8)
        check_between("lr", self.lr, 0, ends="(]")
        for name in ("noise", "continuity", "gamma"):
            check_between(name, getattr(self, name), 0)
        if self.tau > self.width:
            raise ValueError(f"tau must be at most width, the number of responses: got {self.tau} and {self.width}")

    @classmethod
    def train(cls, runs: Sequence[Self], *, device: str) -> list[Numbers]:
        return [mean_scores(run, choose_device(device)) for run in runs]


def mean_scores(run: Segmentation, device: torch.device) -> Numbers:
    """The scores of a run, averaged over its scenes."""
    lines = []
    for at in range(run.images):
        seed = run.seed * run.images + at
        image, regions = scene(run.size, noise=run.noise, seed=seed)
        found = segment(image.to(device), run, seed=seed).cpu()
        count = len(torch.unique(found))
        lines.append({"miou": miou(found, regions), "boundary": boundary_f(found, regions), "segments": float(count)})
    return {"epochs": run.epochs} | {name: sum(line[name] for line in lines) / len(lines) for name in lines[0]}


def segment(image: Tensor, run: Segmentation, *, seed: int) -> Tensor:
    """The segment of every pixel (H, W) of an image (C, H, W)."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = responses(image.shape[0], run.width, run.layers).to(image.device)
    optimizer, loss = torch.optim.SGD(network.parameters(), lr=run.lr, momentum=0.9), run.create_loss()
    labels = torch.zeros(image.shape[1:], dtype=torch.long)
    for _ in range(run.epochs):
        out: Tensor = network(image[None])
        labels = out.detach()[0].argmax(0)
        if len(torch.unique(labels)) <= FEWEST:
            break
        pixels = out[0].flatten(1).T  # (H·W, q)
        total = loss(pixels, labels.flatten()) + run.continuity * continuity(out[0])
        if run.gamma:
            total = total + run.gamma * adr(pixels, tau=run.tau)
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
    return labels


def responses(channels: int, width: int, layers: int) -> nn.Sequential:
    """The network: 3×3 convolutions with ReLU and batch normalization, then a 1×1 convolution to the responses, normalized."""
    parts: list[nn.Module] = []
    for i in range(layers):
        parts += [nn.Conv2d(channels if i == 0 else width, width, 3, padding=1), nn.ReLU(), nn.BatchNorm2d(width)]
    return nn.Sequential(*parts, nn.Conv2d(width, width, 1), nn.BatchNorm2d(width))


def continuity(out: Tensor) -> Tensor:
    """The mean absolute difference between vertical neighbors plus that between horizontal ones; responses (q, H, W)."""
    return (out[:, 1:] - out[:, :-1]).abs().mean() + (out[:, :, 1:] - out[:, :, :-1]).abs().mean()


def scene(size: int, *, noise: float, seed: int) -> tuple[Tensor, Tensor]:
    """An image (3, size, size) and the region of each pixel (size, size)."""
    draw = torch.Generator().manual_seed(seed)
    count = int(torch.randint(CELLS[0], CELLS[1] + 1, (1,), generator=draw))
    place = torch.stack(torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij"), -1).float()
    centers = torch.rand(count, 2, generator=draw) * size
    regions = torch.cdist(place.view(-1, 2), centers).argmin(1).view(size, size)
    colors, angles = torch.rand(count, 3, generator=draw), torch.rand(count, generator=draw) * torch.pi
    waves, heights = 0.4 + 0.8 * torch.rand(count, generator=draw), 0.3 * torch.rand(count, generator=draw)
    directions = torch.stack([angles.sin(), angles.cos()], -1)[regions]
    grating = heights[regions] * torch.sin(waves[regions] * (place * directions).sum(-1))
    image = colors[regions].permute(2, 0, 1) + grating + noise * torch.randn(3, size, size, generator=draw)
    return image, regions


def miou(segments: Tensor, regions: Tensor) -> float:
    """For each region the largest intersection over union with a segment, averaged over the regions."""
    best = []
    for region in torch.unique(regions):
        own = regions == region
        overlaps = [((segments == one) & own).sum() / ((segments == one) | own).sum() for one in torch.unique(segments[own])]
        best.append(float(max(overlaps)))
    return sum(best) / len(best)


def boundary_f(segments: Tensor, regions: Tensor) -> float:
    """The F score of the boundaries: precision and recall of boundary pixels with one of the other kind within NEAR pixels."""
    ours, theirs = (boundary(one)[None, None].float() for one in (segments, regions))
    precision, recall = (
        float((one * F.max_pool2d(other, 2 * NEAR + 1, stride=1, padding=NEAR)).sum() / one.sum().clamp(min=1))
        for one, other in ((ours, theirs), (theirs, ours))
    )
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def boundary(labels: Tensor) -> Tensor:
    """Pixels (H, W) whose right or lower neighbor has another label."""
    edge = torch.zeros_like(labels, dtype=torch.bool)
    edge[:-1] |= labels[1:] != labels[:-1]
    edge[:, :-1] |= labels[:, 1:] != labels[:, :-1]
    return edge
