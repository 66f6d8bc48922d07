"""The register of the papers' claims: what each says, what was run for it, and the verdict that the results give.

One TOML file a paper in `study/claims/`, an array [[claim]] each: id, where, what, paper (its numbers), counterpart (what is
run here and how it deviates), and optionally

    recipe, results                                files in the repository
    better, worse, metric, direction, margin       rows of `results`: the verdict is computed (paired over seeds, or by margin)
    relation, above, below, other_metric, together   other comparisons, see `evidence.py`
    check = "analytic", test                       a test that shows it: file::name
    verdict, reason, n, hardware, date             said, where nothing can be computed from a table of results
    headline                                       true: named in the summary
    again                                          the id of the claim that this is a second counterpart of: counted with it

A claim with nothing to compute and nothing said is "not run". An array [[second]] gives claims a second counterpart:

    of, id         the claims whose ids are `of` or begin with it and a stroke, under `id` in its place; claims: these ends only
    where, counterpart, recipe, results            of the second; what is compared stays as it was
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
NEEDED = ("id", "where", "what", "paper", "counterpart")
SECOND = ("of", "id", "where", "counterpart", "recipe", "results")


def read_register(folder: Path = REGISTER) -> list[Claim]:
    """All claims, papers in the order of their names; an unknown key, or an id that stands twice, is an error."""
    claims = [claim for path in sorted(folder.glob("*.toml")) for claim in _read(path)]
    seen: set[str] = set()
    for claim in claims:
        if claim.id in seen:
            raise DataError(f"{folder}: the id {claim.id!r} stands twice")
        seen.add(claim.id)
    return claims


def verdict_of(claim: Claim, root: Path) -> Verdict:
    """Computed from the committed results where they are there, else as the register says, else "not run"."""
    if claim.computed and (root / str(claim.results)).is_file():
        return verdict_from(claim, root / str(claim.results))
    if claim.verdict is not None:
        return Verdict(claim.verdict, claim.reason, claim.n, claim.hardware, claim.date)
    if claim.test is not None:
        return Verdict("holds", claim.reason or "shown by a test, which fails where it does not hold")
    return Verdict("not run", claim.reason or ("its results are not there yet" if claim.results else ""))


def problems(claims: Sequence[Claim], root: Path) -> list[str]:
    """Every way in which a claim cannot be traced to what the repository holds."""
    found, known = [], {claim.id for claim in claims if claim.again is None}
    for claim in claims:
        if claim.again is not None and claim.again not in known:
            found.append(f"{claim.id}: again = {claim.again}, which is no claim with a counterpart of its own")
        for name in ("recipe", "results"):
            path = getattr(claim, name)
            late = name == "results" and claim.verdict in (None, "not run")  # a study that is still to be run
            if path is not None and not (root / path).is_file() and not late:
                found.append(f"{claim.id}: {name} = {path}, which is not there")
        if claim.test is not None and not _has_test(root, claim.test):
            found.append(f"{claim.id}: test = {claim.test}, which is not there")
        if claim.check is not None and claim.test is None:
            found.append(f'{claim.id}: check = "{claim.check}" needs a test that shows it')
        try:
            verdict = verdict_of(claim, root).verdict
        except DataError as error:
            found.append(str(error))
            continue
        if verdict != "not run" and claim.test is None and claim.results is None:
            found.append(f"{claim.id}: the verdict {verdict!r} rests on no results and no test")
        if claim.computed and verdict != "not run" and claim.recipe is None:
            found.append(f"{claim.id}: computed from {claim.results}, but no recipe says how that was made")
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
        for key in NEEDED:
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
        place = 1 + next(i for i, one in enumerate(claims) if one.id == made[-1].again)  # after the claims that they are of
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
        raise DataError(f"{where}: no claim's id is {old} or begins with it")
    same: dict[str, Any] = {key: given[key] for key in ("counterpart", "recipe", "results")}
    same |= {"verdict": None, "check": None, "test": None, "n": None, "reason": "", "hardware": "", "date": "", "headline": False}
    return [
        dataclasses.replace(
            one, id=given["id"] + one.id[len(old) :], where=f"{one.where}, {given['where']}", again=one.id, **same
        )
        for one in firsts
    ]


def _plain(entry: dict[str, Any]) -> dict[str, Any]:
    """The entry with a date of TOML as text, and its texts on one line."""
    made = {key: value.isoformat() if hasattr(value, "isoformat") else value for key, value in entry.items()}
    return {key: " ".join(value.split()) if isinstance(value, str) else value for key, value in made.items()}


def _has_test(root: Path, test: str) -> bool:
    file, _, name = test.partition("::")
    path = root / file
    return path.is_file() and (not name or f"def {name.rpartition('::')[2].partition('[')[0]}(" in path.read_text())
