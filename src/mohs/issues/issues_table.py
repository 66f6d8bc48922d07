"""The issues of one data set: a score, a flag and, for copies, a group for every example; as a table and as a file.

NAME, is_NAME, NAME_group     columns of the table, for every issue that was searched for
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from mohs.issues.catalog import ISSUES
from mohs.issues.duplicates import Copies
from mohs.issues.found import Found

KEY, INPUTS = b"mohs issues", b"mohs inputs"


@dataclass(frozen=True, eq=False)
class Issues:
    """Issues of N examples besides wrong labels.

    Attributes:
        count: Number of examples N.
        found: Score, flag, group and details of each issue that was searched for, by name, in the order of `ISSUES`.
        copies: Copies found without the labels, to reuse in another search of the same inputs; not in the table.
        inputs: Hash of the inputs of each split that was searched, regardless of labels.
    """

    count: int
    found: Mapping[str, Found] = field(default_factory=dict)
    copies: Copies | None = field(default=None, repr=False)
    inputs: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def shares(self) -> dict[str, float]:
        """Share of the examples that have each issue; of the columns for constant_column."""
        return {name: found.share for name, found in self.found.items()}

    @property
    def table(self) -> pa.Table:
        """One row per example; for each issue its score NAME, its flag is_NAME and, for copies, NAME_group (−1: none)."""
        columns: dict[str, Any] = {}
        for name, found in self.found.items():
            columns[name] = pa.array(np.asarray(found.score, np.float32))
            columns[f"is_{name}"] = pa.array(found.flag)
            if found.group is not None:
                columns[f"{name}_group"] = pa.array(found.group)
        if not columns:
            return pa.table({"row": np.arange(self.count)}).replace_schema_metadata({KEY: b"{}", INPUTS: b"{}"})
        about = {
            name: {"details": [dict(one) for one in found.details], "part": found.part} for name, found in self.found.items()
        }
        return pa.table(columns).replace_schema_metadata(
            {KEY: json.dumps(about).encode(), INPUTS: json.dumps(dict(self.inputs)).encode()}
        )

    @classmethod
    def of_table(cls, table: pa.Table) -> Issues:
        """The issues that `table` holds."""
        kept = table.schema.metadata or {}
        about, inputs = json.loads(kept[KEY]), json.loads(kept.get(INPUTS, b"{}"))

        def values(name: str) -> Any:
            return table.column(name).to_numpy(zero_copy_only=False) if name in table.column_names else None

        found = {
            name: Found(values(name), values(f"is_{name}"), values(f"{name}_group"), words["details"], words["part"])
            for name, words in about.items()
        }
        return cls(table.num_rows, found, inputs=inputs)

    def names(self) -> list[str | None]:
        """The issues of each example, separated by blanks, the most serious first; None without any."""
        found: list[list[str]] = [[] for _ in range(self.count)]
        for name in ISSUES:
            if name in self.found:
                for row in np.flatnonzero(self.found[name].flag):
                    found[row].append(name)
        return [" ".join(one) or None for one in found]

    def to_pandas(self) -> Any:
        """The table as a pandas DataFrame."""
        return self.table.to_pandas()

    def __repr__(self) -> str:
        flagged = ", ".join(f"{name} {share:.2%}" for name, share in self.shares.items() if share)
        return f"Issues of {self.count:,} examples: {flagged or 'none'}"
