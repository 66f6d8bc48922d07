"""A gate: a bound on the results of an audit, so that continuous integration fails if labels get worse.

mislabeled<0.02          share of examples judged mislabeled (or cannot_tell, hard, ambiguous, easy) under 2 %
noise<=0.05               the estimated share of wrong labels
near_duplicate<1%         share of examples with an issue besides their label (`mohs.issues.catalog`)

Shares are between 0 and 1: a gate that no share could fail, such as mislabeled<5, is an error.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

OPERATORS: dict[str, Callable[[float, float], bool]] = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
FORM = re.compile(r"\s*(\w+)\s*(<=|>=|<|>)\s*([0-9.eE+-]+%?)\s*")


@dataclass(frozen=True)
class Gate:
    """Name, comparison and bound."""

    name: str
    sign: str
    bound: float

    def holds(self, shares: Mapping[str, float]) -> bool:
        """Whether the results are within the bound; an error if the audit did not look for what it bounds."""
        if self.name not in shares:
            raise ValueError(f"gate {self}: this audit has no {self.name}: the data do not allow it, or --issues left it out")
        return OPERATORS[self.sign](shares[self.name], self.bound)

    def result(self, shares: Mapping[str, float]) -> str:
        """Whether the gate passed, and what was measured, in a line."""
        return f"gate {'passed' if self.holds(shares) else 'failed'}: {self} (measured: {shares[self.name]:.4g})"

    def __str__(self) -> str:
        return f"{self.name}{self.sign}{self.bound:g}"


def parse_gate(text: str, known: tuple[str, ...]) -> Gate:
    """Parse a gate such as "mislabeled<0.02" or "noise<=5%"."""
    found = FORM.fullmatch(text)
    if found is None or found[1] not in known:
        raise ValueError(f"gate {text!r}: expected NAME<NUMBER, such as mislabeled<0.02; names: {', '.join(known)}")
    try:
        bound = float(found[3].rstrip("%")) / (100 if found[3].endswith("%") else 1)
    except ValueError:
        raise ValueError(f"gate {text!r}: {found[3]!r} is not a number") from None
    outcomes = {OPERATORS[found[2]](share, bound) for share in (0.0, 1.0)}
    if len(outcomes) == 1:
        meant = f"write {found[1]}{found[2]}{bound:g}% for {bound:g} percent" if 1 <= bound <= 100 else "give a share"
        meant = meant if not found[3].endswith("%") else "give a bound between 0% and 100%"
        raise ValueError(f"gate {text!r} can never {'fail' if outcomes == {True} else 'pass'}: shares are from 0 to 1; {meant}")
    return Gate(found[1], found[2], bound)
