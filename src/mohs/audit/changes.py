"""What changed between two audits of the same examples: which label errors and other issues are new, solved, or still there.

    new          mislabeled now, not before            changed      another verdict, but mislabeled neither before nor now
    still        mislabeled before and now             unchanged    the same verdict, and not mislabeled
    solved       mislabeled before, not now, and       added, removed    only in the new audit, only in the old one
                 the label was changed
    withdrawn    mislabeled before, not now, with the same label: the audit has changed its mind, for example by checked labels

Examples are matched by id. One that was removed and had been mislabeled is solved; one that was added and is mislabeled is new.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

CHANGES = ("new", "still", "solved", "withdrawn", "changed", "unchanged", "added", "removed")
FLAGGED = "mislabeled"
KEY = b"mohs diff"


@dataclass(frozen=True, eq=False)
class AuditDiff:
    """What changed between two audits.

    Attributes:
        table: One row per example of either audit: id, change, label and verdict before and now, p_mislabeled before and now,
            and the names of other issues that are new and that are solved, separated by blanks. Null: not in that audit.
        issues: For each issue that both audits searched for: number of examples before and now, new and solved.
        previous: Folder of the earlier audit.
    """

    table: pa.Table = field(repr=False)
    issues: Sequence[Mapping[str, Any]] = field(default=(), repr=False)
    previous: str = ""

    @property
    def counts(self) -> dict[str, int]:
        """Number of examples with each change (`CHANGES`)."""
        found = Counter(self.table.column("change").to_pylist())
        return {name: found[name] for name in CHANGES}

    def moves(self) -> Counter[tuple[str, str]]:
        """Number of examples by verdict before and now, for examples of both audits whose verdict changed."""
        rows = zip(*(self.table.column(name).to_pylist() for name in ("verdict_before", "verdict")), strict=True)
        return Counter((str(old), str(new)) for old, new in rows if old != new and None not in (old, new))

    def stored(self) -> pa.Table:
        """The table with everything else in its metadata, for a file."""
        about = {"previous": self.previous, "issues": [dict(one) for one in self.issues]}
        return self.table.replace_schema_metadata({KEY: json.dumps(about).encode()})

    @classmethod
    def of_stored(cls, table: pa.Table) -> AuditDiff:
        """The diff that `stored` holds."""
        about = json.loads((table.schema.metadata or {})[KEY])
        return cls(table.replace_schema_metadata(), about["issues"], about["previous"])

    def to_pandas(self) -> Any:
        """The table as a pandas DataFrame."""
        return self.table.to_pandas()

    def __repr__(self) -> str:
        return "AuditDiff: " + ", ".join(f"{count:,} {name}" for name, count in self.counts.items() if count)
