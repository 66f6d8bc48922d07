"""The register of the papers' claims: what each claim says, what was run to test it, and the verdict from the results.

One TOML file per paper in `studies/claims/`, with an array [[claim]]: id, where, what, paper (its numbers), counterpart (what
is run here and how it deviates), and optionally

    recipe, results                                files in the repository; recipe may be the script of a benchmark
    better, worse, metric, direction, margin       rows of `results`: the verdict is computed (paired over seeds, or by margin)
    relation, above, below, other_metric, matched, together, pooled, interval   other comparisons, see `claim_verdict.py`
    test, refuted_by                               a test that proves the claim, or its opposite: file::name
    reason                                         a remark on the evidence, or why nothing was run
    rerun                                          why the results must be computed again; shown with the verdict
    headline                                       true: included in the summary
    again                                          id of the claim that this one tests a second time; both count as one

No verdict can be stated: a claim without results and without a test is "not run". p is corrected over all claims judged by runs
for the false discovery rate (`judge_register`). An array [[second]] tests claims a second time, elsewhere:

    of, id         the claims with id `of` or `of`/...: the new ids begin with `id` instead; claims: only these endings
    where, counterpart, recipe, results            of the second test; the comparisons stay the same
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from mohs._core.errors import DataError
from mohs.evaluate.statistics import benjamini_hochberg
from mohs.studies.claim_verdict import Claim, Verdict, verdict_from
from mohs.studies.judge import ALPHA
from mohs.studies.recipe import Recipe, read_recipe

REGISTER = Path(__file__).parent / "claims"
REQUIRED = ("id", "where", "what", "paper", "counterpart")
LATE = "no results yet: the recipe is ready, but the computing time that it needs was not available"
SECOND = ("of", "id", "where", "counterpart", "recipe", "results")


def read_register(folder: Path = REGISTER) -> list[Claim]:
    """All claims, papers in alphabetical order; an unknown key or a duplicate id is an error."""
    claims = [claim for path in sorted(folder.glob("*.toml")) for claim in _read(path)]
    seen: set[str] = set()
    for claim in claims:
        if claim.id in seen:
            raise DataError(f"{folder}: duplicate id {claim.id!r}")
        seen.add(claim.id)
    return claims


@dataclass(frozen=True)
class Judged:
    """A claim, its verdict by itself, and q, its p corrected for the false discovery rate over the register (NaN without p)."""

    claim: Claim
    found: Verdict
    q: float

    @property
    def verdict(self) -> str:
        """The verdict by itself."""
        return self.found.verdict

    @property
    def controlled(self) -> str:
        """The verdict that remains when the false discovery rate is controlled at 5 %."""
        return "draw" if self.verdict in ("holds", "fails") and self.q >= ALPHA else self.verdict


def judge_register(claims: Sequence[Claim], root: Path) -> list[Judged]:
    """Judge every claim, by itself and with the false discovery rate controlled over all that are judged by runs."""
    found = [verdict_of(claim, root) for claim in claims]
    qs = benjamini_hochberg([verdict.p for verdict in found])
    return [Judged(claim, verdict, q) for claim, verdict, q in zip(claims, found, qs, strict=True)]


def verdict_of(claim: Claim, root: Path) -> Verdict:
    """The verdict computed from the committed results, or proven by a test, or else "not run"."""
    if claim.computed and (root / str(claim.results)).is_file():
        made_by = root / str(claim.recipe)
        recipe = _recipe(made_by) if made_by.suffix == ".toml" and made_by.is_file() else None
        return verdict_from(claim, root / str(claim.results), recipe)
    if claim.test is not None:
        return Verdict("holds", claim.reason or "proven by a test")
    if claim.refuted_by is not None:
        return Verdict("fails", claim.reason or "refuted by a test")
    return Verdict("not run", "; ".join(filter(None, (LATE if claim.results else "", claim.reason))))


@cache
def _recipe(path: Path) -> Recipe:
    return read_recipe(path)


def problems(claims: Sequence[Claim], root: Path) -> list[str]:
    """Every reason why a claim cannot be traced to files of the repository."""
    found, known = [], {claim.id for claim in claims if claim.again is None}
    for claim in claims:
        if claim.again is not None and claim.again not in known:
            found.append(f"{claim.id}: again = {claim.again}, which is not the id of a first test")
        for name in ("recipe", "results"):
            path, late = getattr(claim, name), name == "results" and claim.recipe is not None  # a study that has not been run
            if path is not None and not (root / path).is_file() and not late:
                found.append(f"{claim.id}: {name} = {path}: no such file")
        if claim.proof is not None and not _has_test(root, claim.proof):
            found.append(f"{claim.id}: {'test' if claim.test else 'refuted_by'} = {claim.proof}: no such test")
        try:
            verdict = verdict_of(claim, root).verdict
        except (DataError, ValueError) as error:
            found.append(str(error))
            continue
        if claim.computed and verdict != "not run" and claim.recipe is None:
            found.append(f"{claim.id}: computed from {claim.results}, but no recipe is given")
    return found


def _read(path: Path) -> list[Claim]:
    try:
        given = tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"{path}: not TOML ({error})") from error
    known = [f.name for f in dataclasses.fields(Claim) if f.name != "source"]
    claims = []
    for number, entry in enumerate(given.get("claim", []), 1):
        where = f"{path.name}, claim {number} ({entry.get('id', 'no id')})"
        for key in REQUIRED:
            if key not in entry:
                raise DataError(f"{where}: needs {key}")
        for key in entry:
            if key not in known:
                raise DataError(f"{where}: unknown key {key!r}; known: {', '.join(known)}")
        try:
            claims.append(Claim(source=path.stem, **_plain(entry)))
        except ValueError as error:
            raise DataError(f"{where}: {error}") from error
    for entry in given.get("second", []):
        made = _seconds(path, entry, claims)
        place = 1 + next(i for i, one in enumerate(claims) if one.id == made[-1].again)  # after the claims that they repeat
        claims[place:place] = made
    return claims


def _seconds(path: Path, entry: dict[str, Any], claims: Sequence[Claim]) -> list[Claim]:
    """The claims of one [[second]]."""
    where = f"{path.name}, second ({entry.get('id', 'no id')})"
    for key in entry:
        if key not in (*SECOND, "claims"):
            raise DataError(f"{where}: unknown key {key!r}; known: {', '.join((*SECOND, 'claims'))}")
    if missing := [key for key in SECOND if key not in entry]:
        raise DataError(f"{where}: needs {missing[0]}")
    given, old, ends = _plain(entry), entry["of"], entry.get("claims")
    firsts = [one for one in claims if one.again is None and (one.id == old or one.id.startswith(f"{old}/"))]
    if ends is not None:
        firsts = [one for one in firsts if one.id[len(old) + 1 :] in ends]
        if unknown := [end for end in ends if f"{old}/{end}" not in {one.id for one in firsts}]:
            raise DataError(f"{where}: {old} has no claim {unknown[0]!r}")
    if not firsts:
        raise DataError(f"{where}: no claim has the id {old} or {old}/...")
    same: dict[str, Any] = {key: given[key] for key in ("counterpart", "recipe", "results")}
    same |= {"test": None, "refuted_by": None, "reason": "", "rerun": "", "headline": False}
    return [
        dataclasses.replace(
            one, id=given["id"] + one.id[len(old) :], where=f"{one.where}, {given['where']}", again=one.id, **same
        )
        for one in firsts
    ]


def _plain(entry: dict[str, Any]) -> dict[str, Any]:
    """The entry with dates as text, and each text on one line."""
    made = {key: value.isoformat() if hasattr(value, "isoformat") else value for key, value in entry.items()}
    return {key: " ".join(value.split()) if isinstance(value, str) else value for key, value in made.items()}


def _has_test(root: Path, test: str) -> bool:
    file, _, name = test.partition("::")
    path = root / file
    return path.is_file() and (not name or f"def {name.rpartition('::')[2].partition('[')[0]}(" in path.read_text())
