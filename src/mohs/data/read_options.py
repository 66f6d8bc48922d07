"""The options that `open_data` passes to every reader."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mohs._core.errors import DataError
from mohs._core.validation import check_type
from mohs.data.decode import Size, as_size
from mohs.data.image_stores import printable
from mohs.data.images import MEMORY_LIMIT

ARROW = "->"  # separates the two domains of a pair
FOLDER = "MOHS_DATA"  # environment variable: the folder of the known data sets


@dataclass(frozen=True)
class Reading:
    """The folder of known data sets, the columns of labels, text and groups, the separator of several labels, the size of images.

    target: column of numbers that are the labels.
    """

    root: Path | None = None
    label: str | None = None
    text: str | None = None
    group: str | None = None
    separator: str | None = None
    target: str | None = None
    image_size: Size | None = None
    memory_limit: int = MEMORY_LIMIT

    @classmethod
    def of(cls, *, root: str | Path | None = None, image_size: int | Size | None = None, **options: Any) -> Reading:
        """The options with their defaults resolved: the root by MOHS_DATA, the size as (height, width)."""
        home = os.environ.get(FOLDER) if root is None else root
        for name in ("label", "text", "group", "target"):
            if isinstance(options.get(name), int):  # columns of a data frame may be numbers
                options[name] = str(options[name])
            check_type(name, options.get(name), str | None)
        return cls(Path(home) if home else None, image_size=None if image_size is None else as_size(image_size), **options)

    @property
    def columns(self) -> dict[str, Any]:
        return {"label": self.label, "text": self.text, "group": self.group}

    @property
    def rows(self) -> dict[str, Any]:
        return {**self.columns, "separator": self.separator, "target": self.target}

    @property
    def images(self) -> dict[str, Any]:
        return {"image_size": self.image_size, "memory_limit": self.memory_limit}

    @property
    def given(self) -> dict[str, Any]:
        """The same as arguments of `open_data`."""
        return {"root": self.root, **self.rows, **self.images}

    def home(self, name: str, *below: str) -> Path:
        """The folder of a known data set: the first of these below the root that exists, or the root itself."""
        if self.root is None:
            raise DataError(f"{name}: pass root, or set {FOLDER} to the folder that holds it")
        if not self.root.is_dir():
            raise DataError(f"{name}: {printable(str(self.root))} (root, or {FOLDER}) is not a folder")
        return next((self.root / one for one in below if (self.root / one).exists()), self.root)
