"""The doctor: what is installed, on what it runs, whether the main pieces work here, and what to install for the rest.

Packages are imported, not only looked for: a torchvision that does not fit its torch is found here and not in the middle of a
run. What is broken is told, never raised. The self-test trains for real, in a temporary folder, for about a second.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import platform
import shutil
import sys
import warnings
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from mohs import __version__
from mohs.cli.self_test import Check, said, self_test

# the name that pip knows -> the name that import knows
NEEDED = {
    "torch": "torch",
    "accelerate": "accelerate",
    "numpy": "numpy",
    "scipy": "scipy",
    "scikit-learn": "sklearn",
    "pyarrow": "pyarrow",
    "pillow": "PIL",
    "jinja2": "jinja2",
    "safetensors": "safetensors",
    "torchmetrics": "torchmetrics",
    "typer": "typer",
    "rich": "rich",
}
EXTRAS: dict[str, tuple[dict[str, str], str]] = {
    "report": (
        {"altair": "altair", "vl-convert-python": "vl_convert"},
        "charts in the report, and pictures by mohs emphasis and mohs compare --out",
    ),
    "vision": ({"torchvision": "torchvision", "timm": "timm"}, "the networks torchvision:NAME and timm:NAME"),
    "explain": ({"captum": "captum"}, "Grad-CAM, for the measure cam"),
    "hf": (
        {"datasets": "datasets", "transformers": "transformers"},
        "data by hf:NAME, and mohs in the Hugging Face Trainer",
    ),
    "lightning": ({"lightning": "lightning"}, "mohs in Lightning"),
}
DATA_FOLDER = "MOHS_DATA"


@dataclass(frozen=True)
class Package:
    """A package: its version, None where it is not installed; problem: why it does not import."""

    name: str
    version: str | None
    problem: str = ""

    @property
    def works(self) -> bool:
        return self.version is not None and not self.problem


@dataclass(frozen=True)
class Extra:
    """An extra: what it is for, its packages, and the command that installs it."""

    name: str
    purpose: str
    packages: list[Package]
    install: str

    @property
    def state(self) -> str:
        """ok, missing or broken."""
        if any(package.problem for package in self.packages):
            return "broken"
        return "ok" if all(package.works for package in self.packages) else "missing"


@dataclass(frozen=True)
class Health:
    """All that the doctor found; advice: what to do, one thing a line."""

    mohs: str
    python: str
    system: str
    machine: dict[str, Any]
    packages: list[Package]
    extras: list[Extra]
    checks: list[Check]
    advice: list[str] = field(default_factory=list)

    @property
    def fine(self) -> bool:
        """Whether all that is needed works; extras are not needed."""
        return all(package.works for package in self.packages) and all(check.passed for check in self.checks)


def examine(*, test: bool = True) -> Health:
    """What is here and whether it works."""
    packages = [look_at(name, module) for name, module in NEEDED.items()]
    extras = [
        Extra(name, purpose, [look_at(*one) for one in parts.items()], f"pip install 'mohs[{name}]'")
        for name, (parts, purpose) in EXTRAS.items()
    ]
    checks = self_test() if test else []
    system = f"{platform.system()} {platform.machine()}"
    python = platform.python_version()
    return Health(__version__, python, system, machine(), packages, extras, checks, advice(packages, extras, checks))


def look_at(name: str, module: str) -> Package:
    """Import it, and say what came of it."""
    try:
        version: str | None = metadata.version(name)
    except metadata.PackageNotFoundError:
        version = None
    try:
        if version is None and module not in sys.modules and importlib.util.find_spec(module) is None:
            return Package(name, None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module(module)
    except Exception as error:  # a broken installation raises more than ImportError
        return Package(name, version, said(error))
    return Package(name, version or "unknown")


def machine() -> dict[str, Any]:
    """Cores, memory and free disk in bytes, the GPUs that torch can use with their memory, and where named data sets lie."""
    affinity = getattr(os, "sched_getaffinity", None)
    found: dict[str, Any] = {"cores": len(affinity(0)) if affinity else os.cpu_count(), "memory": None}
    found["disk_free"] = shutil.disk_usage(Path.cwd()).free
    found["data_folder"] = os.environ.get(DATA_FOLDER)
    found["gpus"] = []
    with contextlib.suppress(AttributeError, ValueError, OSError):  # Windows has no sysconf
        found["memory"] = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        import torch

        for number in range(torch.cuda.device_count()):
            free, total = torch.cuda.mem_get_info(number)
            found["gpus"].append({"name": torch.cuda.get_device_name(number), "memory": total, "free": free})
        found["cuda"] = torch.version.cuda
    except Exception as error:  # a driver that does not fit
        found["gpu_problem"] = said(error)
    return found


def advice(packages: list[Package], extras: list[Extra], checks: list[Check]) -> list[str]:
    """What to do about what is broken or missing, the needed first."""
    wrong = {one.name: "does not import" if one.problem else "is not installed" for one in packages if not one.works}
    lines = [f"{name} is needed and {what}: pip install --upgrade --force-reinstall {name}" for name, what in wrong.items()]
    lines += [f"the self-test of {one.name} failed ({one.detail})" for one in checks if not one.passed]
    for extra in extras:
        what = ", ".join(one.name for one in extra.packages if not one.works)
        if extra.state == "broken":
            lines.append(f"{what} is there but does not import: {extra.install} --upgrade --force-reinstall")
        elif extra.state == "missing":
            lines.append(f"for {extra.purpose} ({what}): {extra.install}")
    return lines
