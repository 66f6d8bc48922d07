"""Measures by name: what a study measures on each trained network besides accuracy, stored in the run's folder.

`[[measure]] name = "ece", bins = 10` in a recipe is MEASURES["ece"](bins=10). Called with the trained run and the data it was
trained on, it returns named numbers. `measures.json` stores them by the measure's settings: nothing is measured twice.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from mohs._core.checksums import damaged, read_json
from mohs._core.files import written_whole
from mohs._core.specs import create_spec
from mohs.data.examples import Data
from mohs.studies.measures.fitting import Curve, History, LabelFit
from mohs.studies.measures.gradients import AttackPath, Gradients
from mohs.studies.measures.human import Cam, Human
from mohs.studies.measures.predictions import Calibration, Energy, Imbalance, Margins, Recall, Uncertain
from mohs.studies.measures.representation import Cluster, LinearProbe, PairVerification, Retrieval
from mohs.studies.measures.stress import Degrade, OutOfDistribution, UnderAttack
from mohs.studies.measures.trajectories import AgreementBins, Course
from mohs.studies.measures.transfer import Alignment, SelfTraining
from mohs.train.trained import Trained


class Measure(Protocol):
    """A callable that measures a trained run."""

    def __call__(self, trained: Trained, data: Data) -> dict[str, float]: ...


MEASURES: dict[str, type[Measure]] = {
    "ece": Calibration,
    "fit": LabelFit,
    "ood": OutOfDistribution,
    "attack": UnderAttack,
    "probe": LinearProbe,
    "cluster": Cluster,
    "imbalance": Imbalance,
    "retrieval": Retrieval,
    "verification": PairVerification,
    "cam": Cam,
    "degrade": Degrade,
    "margins": Margins,
    "energy": Energy,
    "human": Human,
    "history": History,
    "recall": Recall,
    "curve": Curve,
    "course": Course,
    "agreement_bins": AgreementBins,
    "gradients": Gradients,
    "attack_path": AttackPath,
    "uncertain": Uncertain,
    "self_training": SelfTraining,
    "alignment": Alignment,
}
FILE = "measures.json"
SMALLER = {"steps": 2, "restarts": 1, "examples": 16, "epochs": 2, "rounds": 2}  # upper limits in a trial


@dataclass(frozen=True)
class NamedMeasure:
    """A measure of a recipe: its name, the prefix of its numbers, and the measure itself."""

    name: str
    label: str
    measure: Measure

    @property
    def key(self) -> str:
        """All its settings as text: the key of its numbers in `measures.json`."""
        return json.dumps({"name": self.name, **dataclasses.asdict(self.measure)}, sort_keys=True, default=list)  # type: ignore[call-overload]

    def column(self, number: str) -> str:
        return f"{self.label}_{number}" if self.label else number


def named_measures(specs: Sequence[Mapping[str, Any]], *, where: str, smaller: bool = False) -> list[NamedMeasure]:
    """The measures of a recipe, validated; two with the same name need labels, or their numbers would collide."""
    made: list[NamedMeasure] = []
    for spec in specs:
        try:
            measure = create_spec(MEASURES, "measure", {key: value for key, value in spec.items() if key != "label"})
        except ValueError as error:
            raise ValueError(f"{where}: [[measure]]: {error}") from error
        if smaller and isinstance(measure, Human | AgreementBins) and not measure.available:
            continue  # a trial skips measures whose files are missing
        if not isinstance(spec.get("label", ""), str):
            raise ValueError(f"{where}: [[measure]]: label must be text, got {spec['label']!r}")
        made.append(NamedMeasure(spec["name"], spec.get("label", ""), smoke_measure(measure) if smaller else measure))
        if [(one.name, one.label) for one in made].count((made[-1].name, made[-1].label)) > 1:
            raise ValueError(f"{where}: two [[measure]] have the name {spec['name']!r}: give each its own label")
    return made


def smoke_measure(measure: Measure) -> Measure:
    """The measure with less work and without data files, for a trial."""
    if isinstance(measure, OutOfDistribution):
        return dataclasses.replace(measure, data="digits")
    given = {f.name: getattr(measure, f.name) for f in dataclasses.fields(measure) if f.name in SMALLER}  # type: ignore[arg-type]
    less = {name: SMALLER[name] if value is None else min(value, SMALLER[name]) for name, value in given.items()}
    return dataclasses.replace(measure, **less)  # type: ignore[type-var]


def stored_measures(folder: Path, measures: Sequence[NamedMeasure]) -> dict[str, float]:
    """The numbers of these measures in the run's folder."""
    found = _read(folder)
    return {m.column(name): _number(value) for m in measures for name, value in found.get(m.key, {}).items()}


def missing_measures(folder: Path, measures: Sequence[NamedMeasure]) -> list[NamedMeasure]:
    """The measures that are not in the run's folder yet."""
    found = _read(folder)
    return [m for m in measures if m.key not in found]


def measure_run(trained: Trained, data: Data, measures: Sequence[NamedMeasure]) -> None:
    """Run the missing measures and store each result at once; errors name the measure and the run."""
    for one in missing_measures(trained.folder, measures):
        try:
            numbers = one.measure(trained, data)
        except (ValueError, ImportError) as error:
            raise type(error)(f"measure {one.name} of {trained.folder.name}: {error}") from error
        plain = {name: value if math.isfinite(value) else str(value) for name, value in numbers.items()}
        with written_whole(trained.folder / FILE) as part:
            part.write_text(json.dumps({**_read(trained.folder), one.key: plain}, indent=1) + "\n")


def _read(folder: Path) -> dict[str, dict[str, Any]]:
    file = folder / FILE
    if not file.exists():
        return {}
    lost, again = "the measured numbers are lost", "remove this file and run the study again; the network is kept"
    made: dict[str, dict[str, Any]] = read_json(file, lost=lost, repair=again)
    for numbers in made.values():
        if not isinstance(numbers, dict) or not all(isinstance(value, float | int | str) for value in numbers.values()):
            raise damaged(file, f"it holds {numbers!r} instead of numbers", lost=lost, repair=again)
    return made


def _number(value: Any) -> float:
    """A number; "nan" and "inf", which JSON lacks, are stored as text."""
    return float(value)
