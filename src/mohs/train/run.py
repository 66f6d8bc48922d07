"""A run: everything that decides how a training ends, as plain values that a file can hold and a hash can name.

Every piece is a spec, a mapping with a `name` and the piece's own fields, or the word of the command line that stands for
it (`"gce:q=0.5"`). Two runs that are equal after `resolved` are the same run; with the fingerprint of the data they have
the same hash, the same folder and, on a CPU, the same weights.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mohs._core.specs import as_spec, safe_name
from mohs._core.validation import check_between, check_choice
from mohs.models import model_spec

Spec = str | Mapping[str, Any]
SPECS = ("noise", "model", "head", "loss", "optimizer", "schedule", "class_weight")
LISTS = ("regularizers", "augment")
PRECISIONS = ("auto", "no", "bf16", "fp16")


@dataclass(frozen=True, kw_only=True)
class Run:
    """Data, model, objective, optimizer and seeds of one training."""

    data: str = "digits"
    noise: Spec | None = None
    long_tail: float | None = None
    validation: float = 0.1
    model: Spec = "auto"
    head: Spec | None = None
    loss: Spec = "cross_entropy"
    regularizers: Sequence[Spec] = ()
    pair_labels: str = "predicted"
    class_weight: Spec | None = None
    optimizer: Spec = "sgd"
    schedule: Spec = "cosine:warmup=0.05"
    augment: Sequence[Spec] | None = None
    epochs: int = 20
    batch: int = 128
    accumulate: int = 1
    clip: float | None = None
    precision: str = "auto"
    compile: bool = False
    ema: float | None = None
    record: bool = True
    trace: bool = False
    trace_test: bool = False
    check_every: int = 1
    seed: int = 0
    noise_seed: int | None = None
    open: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, least in (("epochs", 0), ("batch", 1), ("accumulate", 1), ("check_every", 1)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
        check_between("validation", self.validation, 0, 1, ends="[)")
        check_choice("precision", self.precision, PRECISIONS)
        check_choice("pair_labels", self.pair_labels, ("predicted", "true"))
        if self.accumulate > self.batch:
            raise ValueError(f"accumulate={self.accumulate} parts cannot be made of a batch of {self.batch}")
        for name in SPECS:
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else (model_spec if name == "model" else as_spec)(value))
        for name in LISTS:
            value = getattr(self, name)
            if isinstance(value, str | Mapping):
                raise ValueError(f"{name} must be a list of specs, got {value!r}")
            object.__setattr__(self, name, None if value is None else [as_spec(spec) for spec in value])

    @property
    def labels_seed(self) -> int:
        """The seed of the noise: the run's own, unless it is held fixed over runs."""
        return self.seed if self.noise_seed is None else self.noise_seed

    def plain(self) -> dict[str, Any]:
        """The run as JSON holds it."""
        return dataclasses.asdict(self)

    def hash(self, fingerprint: str) -> str:
        """Eight letters for this run on the data of this fingerprint; what is off does not count, so that a later mohs, which
        has more to switch on, knows the run again."""
        said = {name: value for name, value in self.plain().items() if not is_off(value)}
        text = json.dumps([said, fingerprint], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    def name(self) -> str:
        """A readable beginning for the folder's name."""
        words = [Path(self.data).stem, model_spec(self.model)["name"], as_spec(self.loss)["name"], f"s{self.seed}"]
        return "-".join(safe_name(word).strip("._") or "x" for word in words)


def is_off(value: Any) -> bool:
    """Whether a setting asks for nothing; 0 asks for 0."""
    return value is None or value is False or (not value and isinstance(value, list | tuple | dict))


def run_from(settings: Mapping[str, Any], *, where: str = "the run") -> Run:
    """A run from a mapping; an unknown key is an error that lists the known ones."""
    known = [f.name for f in dataclasses.fields(Run)]
    for key in settings:
        if key not in known:
            raise ValueError(f"{where}: unknown setting {key!r}; known: {', '.join(known)}")
    return Run(**settings)


def read_run(path: Path) -> Run:
    """A run from a TOML file, or from the `run.json` of a finished one."""
    try:
        text = path.read_text()
        given = json.loads(text)["run"] if path.suffix == ".json" else tomllib.loads(text)
    except (json.JSONDecodeError, tomllib.TOMLDecodeError, KeyError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: no run can be read from it ({error})") from error
    return run_from(given, where=str(path))
