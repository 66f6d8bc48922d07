"""A run: all settings that determine the result of a training, as plain values that can be stored in a file and hashed.

Models, losses and the like are specs: a mapping with a `name` and that component's fields, or its short form
("gce:q=0.5"). Two runs that are equal once resolved (`train.resolve`) are the same run: on the same data they have the
same hash, the same folder and, on a CPU, the same weights.
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

from mohs._core.checksums import damaged, read_json
from mohs._core.specs import as_spec, safe_name
from mohs._core.validation import check_between, check_choice, check_fields, check_type
from mohs.models import model_spec

Spec = str | Mapping[str, Any]
SPECS = ("noise", "model", "head", "loss", "optimizer", "schedule", "class_weight", "recipe")
LISTS = ("regularizers", "augment")
PRECISIONS = ("auto", "no", "bf16", "fp16")
MOST_EPOCHS = 1_000_000
FLIPPING = ("crop_flip", "random_resized_crop")  # augmentations that mirror images unless flip=False
EPOCHS, RECIPE_EPOCHS = 20, 60  # defaults, without and with a recipe
OPEN: dict[str, Any] = {  # options for opening the data (`train.run_data`, `open_data`) and their types
    "limit": int,
    "train_limit": int,
    "classes": Sequence[str | int | float],
    "holdout_classes": Sequence[str | int | float],
    "test": float,
    "relabeled_from": str,
    "label": str | None,
    "text": str | None,
    "group": str | None,
    "image_size": int | Sequence[int] | None,
    "split": str | None,
    "root": str | None,
    "without": str | None,
    "votes": str | None,
    "corrected": str | None,
    "memory_limit": int,
}


@dataclass(frozen=True, kw_only=True)
class Run:
    """The settings of one training; a spec is a name with fields, "gce:q=0.5" or {"name": "gce", "q": 0.5}.

    Attributes:
        data: Data set: a known name, a folder or a file (see `open_data`).
        noise: Label noise to add to the training set, as "symmetric:rate=0.4".
        long_tail: Ratio of the largest to the smallest class to which the training set is reduced.
        validation: Share of the training set held out for validation if the data have no validation set.
        embed: Features of images and texts to train on: "auto" or one of `EMBEDDERS`; None: texts are embedded, images are not.
        model: Network (`MODELS`); "auto" chooses by the data and the device.
        head: Classification head (`HEADS`); None: a linear layer.
        loss: Loss (`LOSSES`).
        regularizers: Terms added to the loss (`REGULARIZERS`), each with its weight.
        pair_labels: Labels by which regularizers on pairs compare examples: "predicted" or "true".
        class_weight: Class weights: "auto", "deferred:start=160", or {"name": "given", "weights": {...}}.
        optimizer: Optimizer (`OPTIMIZERS`).
        schedule: Learning-rate schedule.
        augment: Augmentations in order; None chooses by the data, an empty list means no augmentation.
        recipe: Robust training (`RECIPES`), as "robust" or "robust-two:select=margin"; None: the labels are trusted.
        epochs: Number of training epochs; by default 20, or 60 with a recipe.
        batch: Global batch size (summed over processes).
        accumulate: Number of parts that each batch is split into, to save memory.
        clip: Maximum norm of the gradient; None: no clipping.
        precision: "no", "bf16", "fp16"; "auto" is bf16 on a GPU.
        compile: Whether to compile the network with torch.compile.
        ema: Decay of an exponential moving average of the weights; None: no averaging.
        record: Whether to record the training dynamics of each example.
        trace: Whether to keep confidence, norm and AVH of each training example at every epoch.
        trace_test: The same for the test set.
        check_every: Number of epochs between evaluations on the validation and test sets.
        seed: Random seed.
        noise_seed: Random seed of noise, long tail and validation split; None: `seed`.
        open: Options for opening the data: label, image_size, without, limit, ... (see `train.run_data`).
    """

    data: str = "digits"
    noise: Spec | None = None
    long_tail: float | None = None
    validation: float = 0.1
    embed: str | None = None
    model: Spec = "auto"
    head: Spec | None = None
    loss: Spec = "cross_entropy"
    regularizers: Sequence[Spec] = ()
    pair_labels: str = "predicted"
    class_weight: Spec | None = None
    optimizer: Spec = "sgd"
    schedule: Spec = "cosine:warmup=0.05"
    augment: Sequence[Spec] | None = None
    recipe: Spec | None = None
    epochs: int = None  # type: ignore[assignment]
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
        if self.epochs is None:
            object.__setattr__(self, "epochs", EPOCHS if self.recipe is None else RECIPE_EPOCHS)
        for name in LISTS:
            if isinstance(getattr(self, name), str | Mapping):
                raise ValueError(f"{name} must be a list of specs, got {getattr(self, name)!r}")
        check_fields(Run, {f.name: getattr(self, f.name) for f in dataclasses.fields(self)})
        for name, least in (("epochs", 0), ("batch", 1), ("accumulate", 1), ("check_every", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be an integer of at least {least}, got {getattr(self, name)!r}")
        check_between("epochs", self.epochs, 0, MOST_EPOCHS)
        check_between("validation", self.validation, 0, 1, ends="[)")
        if self.long_tail is not None:
            check_between("long_tail", self.long_tail, 1)
        if self.clip is not None:
            check_between("clip", self.clip, 0, ends="(]")
        if self.ema is not None:
            check_between("ema", self.ema, 0, 1, ends="[)")
        for name, value in self.open.items():
            if name not in OPEN:
                raise ValueError(f"open has no option {name!r}; its options: {', '.join(OPEN)}")
            check_type(f"open.{name}", value, OPEN[name])
        check_choice("precision", self.precision, PRECISIONS)
        check_choice("pair_labels", self.pair_labels, ("predicted", "true"))
        if self.embed == "none":
            object.__setattr__(self, "embed", None)
        if self.accumulate > self.batch:
            raise ValueError(f"accumulate={self.accumulate} is larger than the batch size {self.batch}: a part would be empty")
        for name in SPECS:
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else (model_spec if name == "model" else as_spec)(value))
        for name in LISTS:
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else [as_spec(spec) for spec in value])

    @property
    def labels_seed(self) -> int:
        """The seed of noise, long tail and validation split."""
        return self.seed if self.noise_seed is None else self.noise_seed

    @property
    def mirrors(self) -> bool:
        """Whether the augmentation mirrors images."""
        return any(spec["name"] in FLIPPING and spec.get("flip", True) for spec in map(as_spec, self.augment or ()))

    def plain(self) -> dict[str, Any]:
        """The run as JSON values."""
        return dataclasses.asdict(self)

    def hash(self, fingerprint: str) -> str:
        """Eight hexadecimal digits for this run on data with this fingerprint.

        Settings that are off are ignored, so that a later version of mohs with more settings gives the same hash.
        """
        settings = {name: value for name, value in self.plain().items() if not is_off(value)}
        text = json.dumps([settings, fingerprint], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    def name(self) -> str:
        """The readable part of the folder's name."""
        words = [Path(self.data).stem, model_spec(self.model)["name"], as_spec(self.loss)["name"], f"s{self.seed}"]
        return "-".join(safe_name(word).strip("._") or "x" for word in words)


def is_off(value: Any) -> bool:
    """Whether a setting is off: None, False or empty; 0 is a value."""
    return value is None or value is False or (not value and isinstance(value, list | tuple | dict))


def run_from(settings: Mapping[str, Any], *, where: str = "the run") -> Run:
    """A run from a mapping; an unknown key is an error that lists the known keys."""
    known = [f.name for f in dataclasses.fields(Run)]
    for key in settings:
        if key not in known:
            raise ValueError(f"{where}: unknown setting {key!r}; known: {', '.join(known)}")
    return Run(**settings)


def read_run(path: str | Path) -> Run:
    """A run from a TOML file, or from the `run.json` of another run."""
    path = Path(path)
    if path.suffix == ".json":
        lost, repair = "the settings of the run are lost", "give another file"
        held = read_json(path, lost=lost, repair=repair).get("run")
        if not isinstance(held, dict):
            raise damaged(path, "it does not hold the settings of a run", lost=lost, repair=repair)
        return run_from(held, where=str(path))
    try:
        return run_from(tomllib.loads(path.read_text(encoding="utf-8")), where=str(path))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} does not hold the settings of a run ({error})") from error


def run_with(config: str | Path | None = None, **settings: Any) -> Run:
    """A run from a settings file (see `read_run`) with some settings changed; None means: as in the file, or the default."""
    base = {} if config is None else read_run(config).plain()
    return run_from(base | {name: value for name, value in settings.items() if value is not None})
