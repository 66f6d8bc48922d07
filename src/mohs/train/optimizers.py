"""Optimizers by name, ready for CUDA graphs: on a GPU the learning rate is a tensor that a captured step reads each time.

`set_rate` sets the learning rate to a fraction of the initial one, the peak. Weight decay applies to all parameters, as in
the papers, or with decay_all=False to matrices and kernels only, not to biases and norms. Run a step once before it is
captured, so that momenta exist. `state_dict` holds the rate; load it before the capture.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from mohs._core.validation import check_between


class Optimizer(Protocol):
    """Hyper-parameters, and the optimizer that they build."""

    formula: ClassVar[str]
    purpose: ClassVar[str]

    def build(
        self, parameters: Iterable[nn.Parameter], device: torch.device | str, *, moving_beta1: bool = False
    ) -> torch.optim.Optimizer: ...


@dataclass(frozen=True, kw_only=True)
class SGD:
    """Stochastic gradient descent with momentum."""

    formula: ClassVar[str] = "v ← momentum v + g;  w ← w − lr v"
    purpose: ClassVar[str] = "the default; lr=0.1 suits batch normalization, 0.01 nets without; default 4/D for D > 40 features"
    lr: float = 0.1
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 5e-4
    decay_all: bool = True

    def __post_init__(self) -> None:
        check_rates(self.lr, self.weight_decay)
        check_between("momentum", self.momentum, 0, 1, ends="[)")
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov=True needs a momentum over 0")

    def build(
        self, parameters: Iterable[nn.Parameter], device: torch.device | str, *, moving_beta1: bool = False
    ) -> torch.optim.Optimizer:
        groups = parameter_groups(parameters, self.lr, self.weight_decay, device, decay_all=self.decay_all)
        return torch.optim.SGD(groups, lr=self.lr, momentum=self.momentum, nesterov=self.nesterov, fused=can_fuse(device))


@dataclass(frozen=True, kw_only=True)
class Adam:
    """Adam; its weight decay is added to the gradient."""

    formula: ClassVar[str] = "w ← w − lr m/(√v + ε)"
    purpose: ClassVar[str] = "networks that train slowly with SGD; the AMC paper's, with gaussian_ramp"
    algorithm: ClassVar[type[torch.optim.Adam]] = torch.optim.Adam
    lr: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    weight_decay: float = 0.0
    decay_all: bool = True

    def __post_init__(self) -> None:
        check_rates(self.lr, self.weight_decay)
        check_betas(self.beta1, self.beta2)

    def build(
        self, parameters: Iterable[nn.Parameter], device: torch.device | str, *, moving_beta1: bool = False
    ) -> torch.optim.Optimizer:
        groups = parameter_groups(parameters, self.lr, self.weight_decay, device, decay_all=self.decay_all)
        made = self.algorithm(groups, lr=self.lr, betas=(self.beta1, self.beta2), **adam_options(device, moving_beta1))
        return with_moving_beta1(made, device) if moving_beta1 else made


@dataclass(frozen=True, kw_only=True)
class AdamW(Adam):
    """Adam with decoupled weight decay."""

    formula: ClassVar[str] = "w ← (1 − lr weight_decay) w − lr m/(√v + ε)"
    purpose: ClassVar[str] = "transformers, ConvMixer, fine-tuning"
    algorithm: ClassVar[type[torch.optim.Adam]] = torch.optim.AdamW
    weight_decay: float = 0.05


OPTIMIZERS: dict[str, type[Optimizer]] = {"sgd": SGD, "adam": Adam, "adamw": AdamW}


def parameter_groups(
    parameters: Iterable[nn.Parameter], lr: float, weight_decay: float, device: torch.device | str, *, decay_all: bool
) -> list[dict[str, Any]]:
    """One group, or two if biases and norms (one-dimensional parameters) do not decay; each with its peak rate."""
    every = [p for p in parameters if p.requires_grad]
    if not every:
        raise ValueError("there are no parameters to train: no parameter requires a gradient")
    parts = [(every, weight_decay)]
    if not decay_all:
        parts = [([p for p in every if p.dim() > 1], weight_decay), ([p for p in every if p.dim() <= 1], 0.0)]
    cuda = torch.device(device).type == "cuda"
    return [
        {"params": part, "weight_decay": decay, "peak_lr": lr, "lr": torch.tensor(lr, device=device) if cuda else lr}
        for part, decay in parts
        if part
    ]


def adam_options(device: torch.device | str, moving_beta1: bool) -> dict[str, Any]:
    """Fused, except on a GPU with a scheduled β₁, which only the plain implementation takes as a tensor."""
    if torch.device(device).type != "cuda":
        return {"fused": can_fuse(device)}
    return {"capturable": True, "foreach": False, "fused": False} if moving_beta1 else {"capturable": True, "fused": True}


def can_fuse(device: torch.device | str) -> bool:
    """Whether a fused update exists: three times as fast on a CPU, and the only SGD that a CUDA graph can capture."""
    return torch.device(device).type in ("cpu", "cuda")


def with_moving_beta1(optimizer: torch.optim.Optimizer, device: torch.device | str) -> torch.optim.Optimizer:
    """The optimizer with β₁ as a tensor on a GPU, for CUDA graphs."""
    if torch.device(device).type == "cuda":
        for group in optimizer.param_groups:
            beta1, beta2 = group["betas"]
            group["betas"] = (torch.tensor(beta1, device=device), beta2)
    return optimizer


def set_rate(optimizer: torch.optim.Optimizer, factor: float, beta1: float | None = None) -> None:
    """Set the learning rate of every group to `factor` times its peak, in place, and β₁ if given.

    For optimizers not built here, the peak is the learning rate at the first call.
    """
    for group in optimizer.param_groups:
        lr = group["lr"]
        rate = factor * group.setdefault("peak_lr", float(lr))
        if isinstance(lr, Tensor):
            lr.fill_(rate)
        else:
            group["lr"] = rate
        if beta1 is not None and "betas" in group:
            set_beta1(group, beta1)


def set_beta1(group: dict[str, Any], beta1: float) -> None:
    """Set β₁ of a group, in place if it is a tensor; raise if a captured step would not see the change."""
    now, beta2 = group["betas"]
    if isinstance(now, Tensor):
        now.fill_(beta1)
    elif group.get("capturable") and beta1 != now:
        raise ValueError("a captured step would not see β₁ change: build the optimizer with moving_beta1=True")
    else:
        group["betas"] = (beta1, beta2)


def check_rates(lr: float, weight_decay: float) -> None:
    """Validate learning rate and weight decay."""
    check_between("lr", lr, 0, ends="(]")
    check_between("weight_decay", weight_decay, 0)


def check_betas(beta1: float, beta2: float) -> None:
    """Validate β₁ and β₂."""
    check_between("beta1", beta1, 0, 1, ends="[)")
    check_between("beta2", beta2, 0, 1, ends="[)")
