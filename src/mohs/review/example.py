"""Everything the app shows of one example: its values, probabilities, neighbors, training curve and the decisions on it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from mohs.audit.file_names import EVIDENCE_ROWS as ROWS
from mohs.review.review import Review, plain
from mohs.review.source import evidence_classes, evidence_file

DUPLICATE = 0.995  # a neighbor with at least this cosine is called a near duplicate
TRACE = "run/trace.safetensors"
HIDDEN = ("text", "fields", "why", "path")  # roles that are not shown among the values


class ExampleView:
    """Examples in detail; other files are read on demand."""

    def __init__(self, review: Review) -> None:
        self.review = review
        self._evidence = evidence_file(review.source)
        self._classes = [] if self._evidence is None else evidence_classes(self._evidence)
        self._group = lru_cache(maxsize=4)(self._read_group)

    def of(self, row: int) -> dict[str, Any]:
        """One example."""
        review = self.review
        (card,) = review.cards([row])
        shown = {review.source.roles[role] for role in HIDDEN if role in review.source.roles}
        values = {name: _plain(value) for name, value in review.database.whole_row(row).items() if name not in shown}
        state = review.log.state
        return {
            **card,
            "values": values,
            "text": review.original.text(row) or card["text"],
            "fields": _fields(review.original.fields(row)) or card["fields"],
            "probabilities": self._probabilities(row),
            "neighbors": self._neighbors(row),
            "curve": self._curve(row),
            "opinions": [plain(made) for made in state.opinions(card["id"]).values()],
            "history": [plain(made) for made in state.history(card["id"])],
        }

    def _probabilities(self, row: int) -> list[list[Any]]:
        found = self._stored(row)
        pairs = zip(found.get("classes", ()), found.get("probs", ()), strict=True)
        return [
            [self._classes[place], round(float(p), 5)] for place, p in pairs if place < len(self._classes) and math.isfinite(p)
        ]

    def _neighbors(self, row: int) -> list[dict[str, Any]]:
        found = self._stored(row)
        near = [(int(r), float(c)) for r, c in zip(found.get("nearest", ()), found.get("cosine", ()), strict=True) if r >= 0]
        cosines = {r: c for r, c in near if r < self.review.database.total}
        cards = self.review.cards(list(cosines))
        return [
            {**card, "cosine": round(cosines[card["row"]], 4), "duplicate": cosines[card["row"]] >= DUPLICATE} for card in cards
        ]

    def _curve(self, row: int) -> list[float | None]:
        """Confidence in the given label after each epoch, if a network was trained on these examples."""
        file = self.review.source.file(TRACE)
        if file is None:
            return []
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(file, framework="numpy") as trace:
                part = trace.get_slice("/confidence")
                if part.get_shape()[1] != self.review.database.total:
                    return []
                values = np.asarray(part[:, row : row + 1]).ravel().astype(float)
        except (SafetensorError, OSError):
            return []
        return [None if math.isnan(value) else round(value, 4) for value in values]

    def _stored(self, row: int) -> Mapping[str, Any]:
        if self._evidence is None:
            return {}
        found: dict[str, Any] = self._group(row // ROWS).slice(row % ROWS, 1).to_pylist()[0]
        return found

    def _read_group(self, number: int) -> pa.Table:
        assert self._evidence is not None
        return self._evidence.read_row_group(number)


def _fields(values: Mapping[str, Any] | None) -> list[list[Any]] | None:
    return None if values is None else [[str(name), _plain(value)] for name, value in values.items()]


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int | bool) else str(value)
