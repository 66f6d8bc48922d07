"""How data are to be read: what `open_data` was asked for, handed on to whatever reads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mohs._core.errors import DataError
from mohs.data.decode import Size
from mohs.data.image_stores import printable
from mohs.data.images import MEMORY_LIMIT

ARROW = "->"  # between the two domains of a pair
FOLDER = "MOHS_DATA"  # the variable that names where known data sets lie


@dataclass(frozen=True)
class Reading:
    """How to read: where known names lie, and what images become."""

    root: Path | None = None
    label: str | None = None
    image_size: int | Size | None = None
    memory_limit: int = MEMORY_LIMIT

    @property
    def images(self) -> dict[str, Any]:
        return {"image_size": self.image_size, "memory_limit": self.memory_limit}

    @property
    def given(self) -> dict[str, Any]:
        """The same as arguments of `open_data`."""
        return {"root": self.root, "label": self.label, **self.images}

    def home(self, name: str, *below: str) -> Path:
        """The folder of a known name: the first of these below the root that exists, or the root itself."""
        if self.root is None:
            raise DataError(f"{name}: where is it? Pass root, or set {FOLDER} to the folder it lies in")
        if not self.root.is_dir():
            raise DataError(f"{name}: {printable(str(self.root))} (root, or {FOLDER}) is no folder")
        return next((self.root / one for one in below if (self.root / one).exists()), self.root)
