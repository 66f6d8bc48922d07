"""The verdicts of docs/claims.md, recomputed from the register and the results by code that shares nothing with the package."""

from __future__ import annotations

import csv
import json
import math
import random
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

ROOT = Path(__file__).parents[2]
PAGE, REGISTER = ROOT / "docs" / "claims.md", ROOT / "src" / "mohs" / "studies" / "claims"
LINE = re.compile(r"^\| `([^`]+)`<br>.*\| \*\*(holds|fails|draw|not run)\*\*[^|]* \| ([^|]*) \| ([^|]*) \|", re.MULTILINE)
DRAWN, SEED = 30, 19
Claim, Numbers = dict[str, Any], dict[int, float]
Sides = tuple[float, float]  # one-sided p: of "holds", and of "fails"

pytestmark = pytest.mark.skipif(not PAGE.is_file(), reason="not in the source tree")


@cache
def published() -> dict[str, tuple[str, str, str]]:
    """Verdict, p and q by claim, as the page has them."""
    return {name: (verdict, p.strip(), q.strip()) for name, verdict, p, q in LINE.findall(PAGE.read_text())}


@cache
def register() -> dict[str, Claim]:
    """All claims by id, those of [[second]] included."""
    made: dict[str, Claim] = {}
    for path in sorted(REGISTER.glob("*.toml")):
        given = tomllib.loads(path.read_text())
        own = {one["id"]: one for one in given["claim"]}
        for second in given.get("second", []):
            for name, one in list(own.items()):
                rest = name.removeprefix(second["of"])
                chosen = rest[1:] in second.get("claims", [rest[1:]])
                if "again" in one or rest == name or rest[:1] not in ("", "/") or not chosen:
                    continue
                kept = {key: value for key, value in one.items() if key not in ("test", "refuted_by", "reason", "rerun")}
                new = second["id"] + rest
                own[new] = kept | {"id": new, "again": name, "recipe": second["recipe"], "results": second["results"]}
        made |= own
    return made


def listed(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value or [])


@cache
def lines_of(results: str) -> list[dict[str, Any]]:
    """The lines of a results file, numbers as numbers."""
    path = ROOT / results
    if path.suffix == ".json":
        rows, seen = json.loads(path.read_text())["rows"], dict[str, int]()
        for row in rows:
            seen[row["name"]] = seen.get(row["name"], -1) + 1
            row |= {"row": row["name"], "seed": seen[row["name"]]}
        return rows
    with path.open(newline="", encoding="utf-8") as file:
        return [
            {key: value if key in ("row", "error") else number(value) for key, value in line.items() if value}
            for line in csv.DictReader(file)
        ]


def number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def learned(line: dict[str, Any]) -> bool:
    known = [line[name] for name in ("accuracy", "test_accuracy") if name in line]
    if "error" in line:
        return False
    if "classes" not in line or not known:
        return True
    k = line["classes"]
    return max(known) >= min(2 / k, 1 / k + 0.25 * (1 - 1 / k))


def values(lines: list[dict[str, Any]], row: str, metric: str) -> Numbers:
    return {int(line["seed"]): line[metric] for line in lines if line["row"] == row and metric in line}


def below_bound(numbers: np.ndarray, bound: float) -> float:
    """One-sided p of "the mean is not above the bound", the chance of so large a mean or a larger one."""
    gaps = numbers - bound
    if np.ptp(gaps) <= 1e-12 * max(1.0, float(np.abs(gaps).max())):  # no spread: the sign test
        n, up = len(gaps), gaps.mean() > 1e-12
        return 0.5**n if up else 1.0 if gaps.mean() < -1e-12 else 0.5
    return float(stats.ttest_1samp(gaps, 0.0, alternative="greater").pvalue)


def beyond(numbers: np.ndarray, bound: float, *, higher: bool = True) -> Sides:
    signed, edge = (numbers, bound) if higher else (-numbers, -bound)
    return below_bound(signed, edge), below_bound(-signed, -edge)


def within(gaps: np.ndarray, margin: float) -> Sides:
    over, under = below_bound(gaps, margin), below_bound(-gaps, margin)
    inside = max(below_bound(gaps, -margin), below_bound(-gaps, -margin))
    return inside, min(over, under)


def normal(value: float, error: float, claim: Claim) -> Sides:
    """The sides for an estimate with a standard error over examples."""
    if claim.get("relation") == "equal":
        m = claim["margin"]
        inside = max(stats.norm.sf((value + m) / error), stats.norm.cdf((value - m) / error))
        return float(inside), float(min(stats.norm.sf((value - m) / error), stats.norm.cdf((value + m) / error)))
    bound = claim.get("above", claim.get("below", 0.0))
    down = "below" in claim or ("above" not in claim and claim.get("direction") == "lower")
    up = float(stats.norm.sf((value - bound) / error))
    return (1 - up, up) if down else (up, 1 - up)


def pairs(claim: Claim) -> Iterator[tuple[str, str]]:
    better, worse = listed(claim["better"]), listed(claim.get("worse"))
    if claim.get("matched"):
        yield from zip(better, worse, strict=True)
    else:
        yield from ((one, other) for one in better for other in worse)


def sides_of(claim: Claim, lines: list[dict[str, Any]], missing: set[str]) -> list[Sides | None]:
    """The two one-sided p of every comparison; None for one that rests on a single run."""
    better, metric = listed(claim["better"]), claim.get("metric", "test_accuracy")
    others, relation = listed(claim.get("other_metric")), claim.get("relation", "better")
    higher, number = claim.get("direction", "higher") == "higher", "above" in claim or "below" in claim
    bound, over = claim.get("above", claim.get("below", 0.0)), "below" not in claim

    def gap(ours: Numbers, theirs: Numbers) -> Sides | None:
        gaps = np.array([ours[s] - theirs[s] for s in ours if s in theirs and math.isfinite(ours[s] - theirs[s])])
        if len(gaps) < 2:
            return None
        if relation == "equal":
            return within(gaps, claim["margin"])
        return beyond(gaps if higher else -gaps, claim.get("margin", 0.0))

    def against_number(found: Numbers) -> Sides | None:
        finite = np.array([value for value in found.values() if math.isfinite(value)])
        return None if len(finite) < 2 else beyond(finite, bound, higher=over)

    def of_rows(rows: list[str], name: str, make: Any) -> Numbers:
        own = [values(lines, row, name) for row in rows]
        return {seed: make([one[seed] for one in own]) for seed in own[0] if all(seed in one for one in own)}

    if claim.get("interval") == "examples":
        return list(over_examples(claim, lines))
    if claim.get("together"):
        ours = of_rows(better, metric, np.mean)
        worse = listed(claim.get("worse"))
        return [gap(ours, of_rows(worse, metric, np.mean))] if worse else [gap(ours, of_rows(better, m, np.mean)) for m in others]
    if relation == "range":
        return [against_number(of_rows(better, metric, lambda found: max(found) - min(found)))]
    if relation == "ranks":
        ours, made = of_rows(better, metric, list), []
        for other in others:
            theirs = of_rows(better, other, list)
            made.append(against_number({s: float(stats.spearmanr(ours[s], theirs[s])[0]) for s in ours if s in theirs}))
        return made
    if claim.get("pooled"):
        pooled = [dict(enumerate(v for row in better for v in values(lines, row, m).values())) for m in (metric, *others)]
        return [against_number(pooled[0])] if number else [gap(pooled[0], other) for other in pooled[1:]]
    rows = [row for row in better if row not in missing]
    if number and relation != "ratio":
        return [against_number(values(lines, row, metric)) for row in rows]
    if others:
        return [gap(values(lines, row, metric), values(lines, row, other)) for row in rows for other in others]
    made = []
    for one, other in pairs(claim):
        if not missing & {one, other}:
            ours, theirs = values(lines, one, metric), values(lines, other, metric)
            if relation == "ratio":
                made.append(against_number({seed: ours[seed] / theirs[seed] for seed in ours if theirs.get(seed)}))
            else:
                made.append(gap(ours, theirs))
    return made


def over_examples(claim: Claim, lines: list[dict[str, Any]]) -> Iterator[Sides]:
    metric, others = claim.get("metric", "test_accuracy"), listed(claim.get("other_metric"))
    half = 2 * stats.norm.ppf(0.975)
    by_run = {(line["row"], line["seed"]): line for line in lines}
    rivals = dict(pairs(claim)) if claim.get("matched") else None

    def estimate(line: dict[str, Any], name: str) -> tuple[float, float]:
        return line[name], (line[f"{name}_high"] - line[f"{name}_low"]) / half

    for row in listed(claim["better"]):
        for (own, seed), line in by_run.items():
            if own != row or metric not in line:
                continue
            value, error = estimate(line, metric)
            against = [rivals[row]] if rivals else listed(claim.get("worse"))
            compared = [(by_run[other, seed], metric) for other in against if (other, seed) in by_run]
            compared += [(line, other) for other in others]
            if not compared:
                yield normal(value, error, claim)
            for place, name in compared:
                theirs, spread = estimate(place, name)
                yield normal(value - theirs, math.hypot(error, spread), claim)


@cache
def recomputed(name: str) -> tuple[str, float]:
    """Verdict and p of a claim."""
    claim = register()[name]
    results = claim.get("results")
    if not claim.get("better") or results is None or not (ROOT / results).is_file():
        return ("holds" if "test" in claim else "fails" if "refuted_by" in claim else "not run"), math.nan
    lines = lines_of(results)
    rows = [*listed(claim["better"]), *listed(claim.get("worse"))]
    missing, settings = set(), claim.get("relation") in ("range", "ranks")  # of settings: those that do not learn count
    for row in rows:
        own = [learned(line) for line in lines if line["row"] == row]
        if not own or (not all(own) and sum(own) < 2 and not settings):
            missing.add(row)
    whole = settings or any(claim.get(key) for key in ("together", "pooled"))
    if missing and whole:
        return "not run", math.nan
    good = [line for line in lines if settings or learned(line)]
    found = sides_of(claim, good, missing)
    if not found:
        return "not run", math.nan
    planned = len(list(pairs(claim))) if claim.get("worse") else len(listed(claim["better"]))
    count = planned if missing else len(found)
    known = [one for one in found if one is not None]
    fails = min(1.0, count * min(one[1] for one in known)) if known else math.nan
    holds = max(one[0] for one in known) if known and len(known) == count else math.nan
    sides = [side for side in (holds, fails) if not math.isnan(side)]
    p = min(1.0, 2 * min(sides)) if sides else math.nan
    verdict = "draw" if not p < 0.05 else "holds" if not math.isnan(holds) and holds < fails else "fails"
    return ("not run", math.nan) if missing and verdict != "fails" else (verdict, p)


def shown(p: float) -> str:
    return "" if math.isnan(p) else f"{p:.2g}" if p >= 1e-4 else "< 0.0001"


@cache
def corrected() -> dict[str, float]:
    """q of every claim with a p: Benjamini and Hochberg over the register."""
    known = {name: p for name in register() if not math.isnan(p := recomputed(name)[1])}
    return dict(zip(known, stats.false_discovery_control(list(known.values())), strict=True))


def drawn() -> list[str]:
    return sorted(random.Random(SEED).sample(sorted(published()), DRAWN)) if PAGE.is_file() else []


def test_the_page_has_every_claim_of_the_register() -> None:
    assert set(published()) == set(register())


@pytest.mark.parametrize("name", drawn())
def test_a_random_claim(name: str) -> None:
    verdict, p = recomputed(name)
    assert published()[name][:2] == (verdict, shown(p))


def test_all_claims() -> None:
    wrong = {name: (made, recomputed(name)) for name, made in published().items() if made[0] != recomputed(name)[0]}
    assert wrong == {}


def evidence_of(claim: Claim) -> Iterator[tuple[str, list[float]]]:
    """How the page words each plain comparison of rows or metrics, and its means over the shared seeds and their difference."""
    metric, others = claim.get("metric", "test_accuracy"), listed(claim.get("other_metric"))
    good = [line for line in lines_of(claim["results"]) if learned(line)]
    compared = [(row, metric, row, other, f"{row}: {metric}", other, "") for row in listed(claim["better"]) for other in others]
    if claim.get("worse"):
        compared += [(one, metric, other, metric, one, other, f" ({metric})") for one, other in pairs(claim)]
    for one, own, other, rival, name, label, unit in compared:
        ours, theirs = values(good, one, own), values(good, other, rival)
        shared = [seed for seed in ours if seed in theirs]
        if shared:
            first, second = (np.mean([found[seed] for seed in shared]) for found in (ours, theirs))
            numbers = [float(first), float(second), float(first - second)]
            yield rf"{re.escape(name)} (\S+), {re.escape(label)} (\S+){re.escape(unit)}: ([+-][\d.e-]+)", numbers


def test_the_numbers_in_the_evidence_of_all_plain_comparisons() -> None:
    page = {name: line for line in PAGE.read_text().splitlines() for name in re.findall(r"^\| `([^`]+)`<br>", line)}
    special = ("together", "pooled", "interval", "above", "below")
    seen = 0
    for name, claim in register().items():
        plain = claim.get("relation", "better") in ("better", "equal") and not any(key in claim for key in special)
        if not plain or published()[name][0] == "not run" or not claim.get("results") or not claim.get("better"):
            continue
        for words, numbers in evidence_of(claim):
            found = re.search(words, page[name])
            assert found, name
            for text, value in zip(found.groups(), numbers, strict=True):
                assert float(text) == pytest.approx(value, rel=6e-3, abs=1e-9), name
            seen += 1
        own = [line for line in lines_of(claim["results"]) if line["row"] in mentioned(claim)]
        assert max(str(line["date"]) for line in own if "date" in line) in page[name], name
    assert seen > 150


def mentioned(claim: Claim) -> list[str]:
    return [*listed(claim["better"]), *listed(claim.get("worse"))]


def test_p_and_q_of_all_claims() -> None:
    """To the digits of the page, but for the last one."""
    for name, (_, p, q) in published().items():
        for text, value in ((p, recomputed(name)[1]), (q, corrected().get(name, math.nan))):
            if text and not text.startswith("<"):
                assert float(text) == pytest.approx(value, rel=0.06), name
            else:
                assert bool(text) == (not math.isnan(value)), name
