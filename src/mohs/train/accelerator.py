"""Accelerate's global state for a run: the device, the precision and the trackers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import AutocastKwargs, DistributedDataParallelKwargs
from torch import distributed as dist

from mohs._core.device import choose_device


def use_device(device: str | torch.device) -> None:
    """Make Accelerate, whose state is global to the process, use this device from here on."""
    chosen = choose_device(device)
    AcceleratorState._reset_state(reset_partial_state=not dist.is_initialized())
    state = PartialState(cpu=on_cpu(device))
    if chosen.index is not None and state.num_processes == 1:
        torch.cuda.set_device(chosen)
        state.device = chosen


def on_cpu(device: str | torch.device) -> bool:
    """Whether a run uses the CPU; without this, Accelerate treats torchrun processes without a GPU as separate runs."""
    return str(device) == "cpu" or not torch.accelerator.is_available()


def create_accelerator(precision: str, *, device: str, graph: bool, **trackers: Any) -> Accelerator:
    """An Accelerator for one run; autocast may not cache casts made outside a CUDA graph that is captured."""
    handlers = [AutocastKwargs(cache_enabled=not graph), DistributedDataParallelKwargs(broadcast_buffers=False)]
    return Accelerator(mixed_precision=precision, cpu=on_cpu(device), kwargs_handlers=handlers, **trackers)


def tracker_options(trackers: tuple[str, ...], folder: Path) -> dict[str, Any]:
    """The options of an Accelerator that logs to these trackers; an error names one that is not installed."""
    if not trackers:
        return {}
    from accelerate.tracking import get_available_trackers

    installed = [getattr(name, "value", str(name)) for name in get_available_trackers()]
    for name in trackers:
        if name not in installed:
            raise ValueError(f"tracker {name!r} is unknown or not installed; installed: {', '.join(installed) or '(none)'}")
    return {"log_with": list(trackers), "project_dir": str(folder)}
