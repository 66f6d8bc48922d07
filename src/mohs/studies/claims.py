"""The register of the papers' claims: what each claim says, what was run to test it, and the verdict from the results.

One TOML file per paper in `studies/claims/`, with an array [[claim]]: id, where, what, paper (its numbers), counterpart (what
is run here and how it deviates), and optionally

    recipe, results                                files in the repository
    better, worse, metric, direction, margin       rows of `results`: the verdict is computed (paired over seeds, or by margin)
    relation, above, below, other_metric, together   other comparisons, see `evidence.py`
    check = "analytic", test                       a test that proves the claim: file::name
    verdict, reason, n, hardware, date             stated, if nothing can be computed from a table of results
    headline                                       true: included in the summary
    again                                          id of the claim that this one tests a second time; both count as one

A claim without a computed, proven or stated verdict is "not run". An array [[second]] tests claims a second time, elsewhere:

    of, id         the claims with id `of` or `of`/...: the new ids begin with `id` instead; claims: only these endings
    where, counterpart, recipe, results            of the second test; the comparisons stay the same
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mohs._core.errors import DataError
from mohs.studies.evidence import Claim, Verdict, verdict_from

REGISTER = Path(__file__).parent / "claims"
REQUIRED = ("id", "where", "what", "paper", "counterpart")
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


def verdict_of(claim: Claim, root: Path) -> Verdict:
    """The verdict computed from the committed results, else the one stated in the register, else "not run"."""
    if claim.computed and (root / str(claim.results)).is_file():
        return verdict_from(claim, root / str(claim.results))
    if claim.verdict is not None:
        return Verdict(claim.verdict, claim.reason, claim.n, claim.hardware, claim.date)
    if claim.test is not None:
        return Verdict("holds", claim.reason or "proven by a test")
    return Verdict("not run", claim.reason or ("no results yet" if claim.results else ""))


def problems(claims: Sequence[Claim], root: Path) -> list[str]:
    """Every reason why a claim cannot be traced to files of the repository."""
    found, known = [], {claim.id for claim in claims if claim.again is None}
    for claim in claims:
        if claim.again is not None and claim.again not in known:
            found.append(f"{claim.id}: again = {claim.again}, which is not the id of a first test")
        for name in ("recipe", "results"):
            path = getattr(claim, name)
            late = name == "results" and claim.verdict in (None, "not run")  # a study that has not been run
            if path is not None and not (root / path).is_file() and not late:
                found.append(f"{claim.id}: {name} = {path}: no such file")
        if claim.test is not None and not _has_test(root, claim.test):
            found.append(f"{claim.id}: test = {claim.test}: no such test")
        if claim.check is not None and claim.test is None:
            found.append(f'{claim.id}: check = "{claim.check}" needs a test')
        try:
            verdict = verdict_of(claim, root).verdict
        except DataError as error:
            found.append(str(error))
            continue
        if verdict != "not run" and claim.test is None and claim.results is None:
            found.append(f"{claim.id}: the verdict {verdict!r} has neither results nor a test behind it")
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
        place = 1 + next(i for i, one in enumerate(claims) if one.id == made[-1].again)  # after the claims that they test again
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
    same |= {"verdict": None, "check": None, "test": None, "n": None, "reason": "", "hardware": "", "date": "", "headline": False}
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
