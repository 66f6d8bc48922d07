"""Systems by name, as recipes write them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from mohs.studies.systems.domains import DomainGeneralization
from mohs.studies.systems.graphs import GraphClassification
from mohs.studies.systems.segmentation import Segmentation
from mohs.studies.systems.system import System
from mohs.studies.systems.translation import Translation

SYSTEMS: dict[str, type[System]] = {
    "graphs": GraphClassification,
    "translation": Translation,
    "domains": DomainGeneralization,
    "segmentation": Segmentation,
}


def system_from(name: str, settings: Mapping[str, Any]) -> System:
    """The settings of a run of this system; an unknown key is an error that lists the known ones."""
    known = [f.name for f in dataclasses.fields(SYSTEMS[name])]
    for key in settings:
        if key not in known:
            raise ValueError(f"{name} has no setting {key!r}; known: {', '.join(known)}")
    return SYSTEMS[name](**settings)
