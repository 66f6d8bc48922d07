"""Short trainings for the benchmarks: data on the device, one CUDA graph a step, dynamics recorded by `mohs.Recorder`.

SGD with momentum .9 (Nesterov), one-cycle learning rate, weight decay 5e-4, bfloat16 autocast on a GPU, random
crops of the image padded by 4, and flips. On the CPU the same code runs without a graph, for a smoke test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from mohs import Recorder

from cifar import MEAN, SD
from nets import Net, make

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass
class Recipe:
    """How long and how."""

    net: str = "resnet9"
    epochs: int = 25
    batch: int = 256
    peak_lr: float = 0.1
    decay: float = 5e-4
    seed: int = 0


@dataclass
class Outcome:
    """A trained network and what was recorded of the watched examples, un-augmented, at the end of every epoch."""

    net: Net
    record: Recorder
    steps: Recorder | None = None
    accuracy: list[float] = field(default_factory=list)


def prepare(pixels: np.ndarray) -> Tensor:
    """(N, 32, 32, 3) uint8 -> normalized (N, 3, 32, 32) on the device."""
    x = torch.from_numpy(pixels).to(DEVICE).permute(0, 3, 1, 2).float() / 255
    x = (x - torch.tensor(MEAN, device=DEVICE).view(3, 1, 1)) / torch.tensor(SD, device=DEVICE).view(3, 1, 1)
    return x.to(torch.bfloat16 if DEVICE.type == "cuda" else torch.float32).contiguous(memory_format=torch.channels_last)


def augment(x: Tensor, generator: torch.Generator) -> Tensor:
    """A random crop of each image padded by 4, flipped half of the time."""
    n, size = x.shape[0], x.shape[2]
    padded = torch.nn.functional.pad(x, (4, 4, 4, 4), mode="reflect")
    out = torch.empty_like(x)
    for start in range(0, n, 10_000):
        part = padded[start : start + 10_000]
        k = part.shape[0]
        top, left = (torch.randint(9, (k, 1), generator=generator, device=x.device) for _ in range(2))
        flip = torch.rand(k, 1, generator=generator, device=x.device) < 0.5
        span = torch.arange(size, device=x.device)
        rows, columns = top + span, left + torch.where(flip, span.flip(0), span)
        index = torch.arange(k, device=x.device).view(-1, 1, 1)
        out[start : start + k] = part[index, :, rows.unsqueeze(2), columns.unsqueeze(1)].permute(0, 3, 1, 2)
    return out


def one_cycle(step: int, steps: int, peak: float) -> float:
    """Up to the peak in the first fifth, then down to 0."""
    rise = steps / 5
    return peak * (step / rise if step < rise else (steps - step) / (steps - rise))


class Stepper:
    """Forward, backward and SGD as one replayed graph on a GPU; the plain calls on a CPU."""

    def __init__(self, net: Net, loss: Loss, recipe: Recipe, shape: torch.Size) -> None:
        self.net, self.loss, self.recipe = net, loss, recipe
        self.x = torch.zeros(
            recipe.batch, *shape[1:], device=DEVICE, dtype=torch.bfloat16 if DEVICE.type == "cuda" else torch.float32
        )
        self.x = self.x.contiguous(memory_format=torch.channels_last)
        self.y = torch.zeros(recipe.batch, dtype=torch.long, device=DEVICE)
        self.lr = torch.zeros((), device=DEVICE)
        self.parameters = list(net.parameters())
        self.momentum = [torch.zeros_like(p) for p in self.parameters]
        self.logits: Tensor
        self.features: Tensor
        self.graph = self.capture() if DEVICE.type == "cuda" else None

    def work(self) -> None:
        with torch.autocast(DEVICE.type, torch.bfloat16, enabled=DEVICE.type == "cuda", cache_enabled=False):
            self.features = self.net.features(self.x)
        self.logits = self.net.head(self.features)
        value = self.loss(self.logits, self.y)
        grads = list(torch.autograd.grad(value, self.parameters))
        with torch.no_grad():
            torch._foreach_add_(grads, self.parameters, alpha=self.recipe.decay)
            torch._foreach_mul_(self.momentum, 0.9)
            torch._foreach_add_(self.momentum, grads)
            torch._foreach_add_(grads, self.momentum, alpha=0.9)
            torch._foreach_mul_(grads, self.lr)
            torch._foreach_sub_(self.parameters, grads)

    def capture(self) -> torch.cuda.CUDAGraph:
        saved = [p.detach().clone() for p in self.net.state_dict().values()]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.work()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.work()
        with torch.no_grad():
            for p, old in zip(self.net.state_dict().values(), saved, strict=True):
                p.copy_(old)
            torch._foreach_zero_(self.momentum)
        return graph

    def __call__(self, x: Tensor, y: Tensor, lr: float) -> Tensor:
        self.x.copy_(x)
        self.y.copy_(y)
        self.lr.fill_(lr)
        self.graph.replay() if self.graph else self.work()
        return self.logits.detach()


@torch.no_grad()
def outputs(net: Net, x: Tensor, *, flips: bool = False) -> tuple[Tensor, Tensor]:
    """Logits (N, K) and features (N, D) in eval mode; flips: the mean over the image and its mirror."""
    net.eval()
    views = [x, x.flip(3)] if flips else [x]
    logits, features = [], []
    for part in zip(*(view.split(2048) for view in views), strict=True):
        with torch.autocast(DEVICE.type, torch.bfloat16, enabled=DEVICE.type == "cuda"):
            seen = [net.features(view) for view in part]
        logits.append(sum(net.head(f) for f in seen) / len(seen))
        features.append(sum(seen) / len(seen))
    net.train()
    return torch.cat(logits), torch.cat(features)


def train(
    x: Tensor, y: Tensor, loss: Loss, recipe: Recipe, *, watch: tuple[Tensor, Tensor] | None = None, record_steps: bool = False
) -> Outcome:
    """Train on x, y; the watched examples (default: the training set) are recorded at the end of each epoch."""
    generator = torch.Generator(DEVICE).manual_seed(recipe.seed)
    net = make(recipe.net, seed=recipe.seed).to(DEVICE, memory_format=torch.channels_last)
    step = Stepper(net, loss, recipe, x.shape)
    seen_x, seen_y = (x, y) if watch is None else watch
    done = Outcome(net, Recorder(len(seen_x), head=net.head), Recorder(len(x)) if record_steps else None)
    per_epoch = len(x) // recipe.batch
    for epoch in range(recipe.epochs):
        images = augment(x, generator)
        order = torch.randperm(len(x), generator=generator, device=DEVICE)
        for i in range(per_epoch):
            ids = order[i * recipe.batch : (i + 1) * recipe.batch]
            logits = step(images[ids], y[ids], one_cycle(epoch * per_epoch + i, recipe.epochs * per_epoch, recipe.peak_lr))
            if done.steps is not None:
                done.steps.update(ids, logits, y[ids])
        logits, features = outputs(net, seen_x)
        done.record.update(torch.arange(len(seen_x), device=DEVICE), logits, seen_y, features)
        done.accuracy.append(float((logits.argmax(1) == seen_y).float().mean()))
    return done
