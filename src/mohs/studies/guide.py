"""`docs/what-to-use.md`: which of the papers' ideas help in which situation, and by how much, from the judged claims.

`guide.toml` names the claims; every word of the verdict and every number comes from the register. The gain of an idea is the
difference of the claim's first comparison, positive if the idea is better:

    helps                  the 95 % interval of the gain lies above 0
    hurts                  it lies below 0
    no difference shown    neither; smaller differences than the detectable one may exist
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mohs._core.errors import DataError
from mohs.studies.claims import Judged
from mohs.studies.judge import ALPHA
from mohs.studies.study_page import table

GUIDE = Path(__file__).parent / "guide.toml"
GUIDE_PAGE = Path("docs") / "what-to-use.md"
OPENING = """\
# What to use, and when

This page shows which ideas of the five papers help, which do not, and by how much. Each result is a gain in points of accuracy
(or of AUROC or calibration error, where named) with its 95 % interval; a positive gain means that the idea is better.
`mohs study --claims` generates the page from the judged [claims](claims.md), which describe the experiments: small networks,
short trainings, few seeds (n). "Detectable" is the gain that such a study detects with a probability of 80 %; smaller gains may
exist. LE is the setting `log_end` of the Encouraging Loss; (8, ½) are `beta` and `lam` of Gradient Rescaling; GCE is generalized
cross-entropy, ECE the expected calibration error, CBST class-balanced self-training. A star (\\*) marks a verdict that does not
survive the correction for the number of claims. A dagger (†) marks one whose runs will be repeated; [claims](claims.md) says why.
Compare two losses on your own data: `mohs compare DATA --loss cross_entropy --loss encouraging`."""


@dataclass(frozen=True, kw_only=True)
class Shown:
    """One result of the page: a claim, what it was run on, and whether the claim says that the idea is worse."""

    claim: str
    on: str
    inverse: bool = False


@dataclass(frozen=True, kw_only=True)
class Advice:
    """One row of the page: a situation, an idea, what it replaces, and the results."""

    when: str
    idea: str
    instead: str
    results: Sequence[Shown]


def read_guide(path: Path = GUIDE) -> list[Advice]:
    """The rows of the page, in the order of the file."""
    rows = tomllib.loads(path.read_text())["advice"]
    return [Advice(**{**row, "results": [Shown(**one) for one in row["results"]]}) for row in rows]


def guide_page(judged: Sequence[Judged], guide: Sequence[Advice]) -> str:
    """The page as Markdown; a claim that is not in the register, or not judged by runs, is an error."""
    known, rows, last = {one.claim.id: one for one in judged}, [], ""
    for row in guide:
        cells = "<br>".join(f"{one.on}: {_outcome(one, known)}" for one in row.results)
        rows.append(["" if row.when == last else f"**{row.when}**", row.idea, row.instead, cells])
        last = row.when
    return f"{OPENING}\n\n{table(['', 'idea', 'instead of', 'result'], rows)}\n"


def _outcome(shown: Shown, known: Mapping[str, Judged]) -> str:
    if shown.claim not in known or not known[shown.claim].found.comparisons:
        raise DataError(
            f"guide.toml: the claim {shown.claim} is not in the register, or has not been run: remove it, or run its recipe"
        )
    one = known[shown.claim]
    (_, found), *_ = one.found.comparisons
    sign = -1 if (one.claim.direction == "lower") != shown.inverse else 1
    gain, (low, high) = sign * found.difference, sorted((sign * found.low, sign * found.high))
    marks = ("\\*" if one.found.p < ALPHA <= one.q else "") + (
        "†" if any("to be rerun" in text for text in one.found.caveats) else ""
    )
    word = "**helps**" if low > 0 else "**hurts**" if high < 0 else "no difference shown"
    more = f"; detectable {100 * found.detectable:.1f}" if not low > 0 and not high < 0 else ""
    return f"{word}{marks} {100 * gain:+.1f} [{100 * low:.1f}, {100 * high:.1f}]{more} (n = {found.n})"
