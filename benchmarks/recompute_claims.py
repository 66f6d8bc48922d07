"""Recompute claims drawn at random, with code of its own: verdict, p, the numbers in the evidence, and the paper's numbers.

    python benchmarks/recompute_claims.py --seed 2026 --count 30 --papers FOLDER

Reads `docs/claims.md`, the register's TOML files and the results' CSV files, and nothing of the package. FOLDER (optional)
holds the papers as PAPER.txt: every decimal number that a claim quotes must occur in its paper, or in another that its place
names. A line per claim; the exit status is the number of claims with a defect. What it cannot check, a reader has to: whether
the sentence is the paper's, and whether the recipe is the setting that it says.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import random
import re
import sys
import tomllib
from pathlib import Path

import numpy as np
from scipy import stats

ROOT = Path(__file__).parents[1]
CELLS = re.compile(r"^\| `(?P<id>[^`]+)`<br>(?P<rest>.*)$", re.MULTILINE)
VERDICT = re.compile(r"\| \*\*(holds|fails|draw|not run)\*\*[^|]* \| ([^|]*) \|")


def as_list(value):
    return [] if value is None else [value] if isinstance(value, str) else list(value)


def register():
    """Claims by id; those of [[second]] take the comparison of the claim that they test again."""
    found = {}
    for path in sorted((ROOT / "src/mohs/studies/claims").glob("*.toml")):
        text = tomllib.loads(path.read_text())
        own = {claim["id"]: {**claim, "of": path.stem} for claim in text["claim"]}
        for second in text.get("second", ()):
            base = second["of"]
            for name in [one for one in own if one == base or one.startswith(base + "/")]:
                end = name[len(base) + 1 :]
                if "again" not in own[name] and end in second.get("claims", [end]):
                    drop = {"test", "refuted_by"}
                    kept = {key: value for key, value in own[name].items() if key not in drop}
                    new = second["id"] + name[len(base) :]
                    own[new] = {**kept, "id": new, "again": name, "results": second["results"], "recipe": second["recipe"]}
        found |= own
    return found


def table(path):
    if path.suffix == ".json":
        rows = json.loads(path.read_text())["rows"]
        count = {}
        for row in rows:
            row["row"], row["seed"] = row["name"], count.setdefault(row["name"], 0)
            count[row["name"]] += 1
        return rows
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def learned(line):
    """Whether the run counts: no error, and training or test accuracy of twice chance, or a quarter of the way to 1."""
    if line.get("error"):
        return False
    reached = [float(line[name]) for name in ("accuracy", "test_accuracy") if line.get(name)]
    if not line.get("classes") or not reached:
        return True
    chance = 1 / float(line["classes"])
    return max(reached) >= min(2 * chance, chance + (1 - chance) / 4)


def column(lines, row, metric):
    return {int(one["seed"]): float(one[metric]) for one in lines if one["row"] == row and one.get(metric) not in (None, "")}


def one_sided(sample, bound):
    """The chance of a mean so far above the bound if it were the bound: t-test, or the sign test of equal numbers."""
    sample = np.asarray(sample, float)
    spread = sample.std(ddof=1)
    if spread <= 1e-12 * max(1.0, np.abs(sample - bound).max()):
        return 0.5 ** len(sample) if sample.mean() - bound > 1e-12 else 1.0 if bound - sample.mean() > 1e-12 else 0.5
    return stats.t.sf((sample.mean() - bound) / (spread / np.sqrt(len(sample))), len(sample) - 1)


def sides(sample, claim):
    """One-sided p of "holds" and of "fails" for differences, or for values against a number."""
    if claim.get("relation") == "equal":
        m = claim["margin"]
        inside = max(one_sided(sample, -m), one_sided(-np.asarray(sample), -m))
        return inside, min(one_sided(sample, m), one_sided(-np.asarray(sample), m))
    if "above" in claim or "below" in claim:
        bound = claim.get("above", claim.get("below"))
        over, under = one_sided(sample, bound), one_sided(-np.asarray(sample), -bound)
        return (over, under) if "above" in claim else (under, over)
    gain = np.asarray(sample) * (-1 if claim.get("direction") == "lower" else 1)
    return one_sided(gain, claim.get("margin", 0.0)), one_sided(-gain, -claim.get("margin", 0.0))


def comparisons(claim, lines):
    """(numbers to be found on the page, sample) of every comparison."""
    better, worse, metric = as_list(claim["better"]), as_list(claim.get("worse")), claim.get("metric", "test_accuracy")
    others, relation = as_list(claim.get("other_metric")), claim.get("relation", "better")

    def rows(names, of, make):
        found = [column(lines, name, of) for name in names]
        return {seed: make([one[seed] for one in found]) for seed in set.intersection(*(set(one) for one in found))}

    def gap(ours, theirs):
        shared = sorted(set(ours) & set(theirs))
        a, b = (np.array([one[seed] for seed in shared]) for one in (ours, theirs))
        return [a.mean(), b.mean(), (a - b).mean()], a - b

    if relation == "range":
        spans = list(rows(better, metric, lambda v: max(v) - min(v)).values())
        yield [np.mean(spans)], spans
    elif relation == "ranks":
        for other in others:
            ours, theirs = rows(better, metric, list), rows(better, other, list)
            yield [], [stats.spearmanr(ours[s], theirs[s])[0] for s in sorted(ours)]
    elif claim.get("together"):
        theirs = [rows(worse, metric, np.mean)] if worse else [rows(better, other, np.mean) for other in others]
        for other in theirs:
            yield gap(rows(better, metric, np.mean), other)
    elif claim.get("pooled"):
        pools = [[v for row in better for v in column(lines, row, name).values()] for name in (metric, *others)]
        if others:
            for other in pools[1:]:
                yield gap(dict(enumerate(pools[0])), dict(enumerate(other)))
        else:
            yield [np.mean(pools[0])], pools[0]
    elif others:
        for row, other in itertools.product(better, others):
            yield gap(column(lines, row, metric), column(lines, row, other))
    elif worse:
        pairs = zip(better, worse, strict=True) if claim.get("matched") else itertools.product(better, worse)
        for one, other in pairs:
            ours, theirs = column(lines, one, metric), column(lines, other, metric)
            if relation == "ratio":
                ratios = [ours[seed] / theirs[seed] for seed in sorted(set(ours) & set(theirs))]
                yield [np.mean(ratios)], ratios
            elif ours and theirs:
                yield gap(ours, theirs)
    else:
        for row in better:
            values = list(column(lines, row, metric).values())
            yield [np.mean(values)], values


def over_examples(claim, lines):
    """Sides of each run by its interval over examples."""
    metric, z = claim["metric"], stats.norm.ppf(0.975)
    worse, others = as_list(claim.get("worse")), as_list(claim.get("other_metric"))
    by_run = {(one["row"], one["seed"]): one for one in lines}
    for place, row in enumerate(as_list(claim["better"])):
        for (name, seed), line in by_run.items():
            if name != row or not line.get(metric):
                continue
            rivals = [worse[place]] if claim.get("matched") else worse
            paired = [(by_run[rival, seed], metric) for rival in rivals if (rival, seed) in by_run] + [(line, m) for m in others]
            for other, of in paired or [(None, "")]:
                value = float(line[metric])
                variance = ((float(line[f"{metric}_high"]) - float(line[f"{metric}_low"])) / (2 * z)) ** 2
                if other is not None:
                    value -= float(other[of])
                    variance += ((float(other[f"{of}_high"]) - float(other[f"{of}_low"])) / (2 * z)) ** 2
                error = variance**0.5
                if claim.get("relation") == "equal":
                    m = claim["margin"]
                    inside = max(stats.norm.sf((value + m) / error), stats.norm.sf((m - value) / error))
                    yield inside, min(stats.norm.sf((value - m) / error), stats.norm.sf((-m - value) / error))
                else:
                    bound = claim.get("above", claim.get("below", 0.0))
                    up = stats.norm.sf((value - bound) / error)
                    down = "below" in claim or ("above" not in claim and claim.get("direction") == "lower")
                    yield (1 - up, up) if down else (up, 1 - up)


def recompute(claim):
    """Verdict, p and the numbers that the page must show."""
    path = ROOT / claim.get("results", "nowhere")
    if "better" not in claim or not path.is_file():
        return ("holds" if "test" in claim else "fails" if "refuted_by" in claim else "not run"), None, []
    lines, settings = table(path), claim.get("relation") in ("range", "ranks")
    rows = as_list(claim["better"]) + as_list(claim.get("worse"))
    counts = {row: [learned(one) for one in lines if one["row"] == row] for row in rows}
    lost = [row for row, good in counts.items() if not good or (not settings and not all(good) and sum(good) < 2)]
    good = [one for one in lines if settings or learned(one)]
    total = max(1, len(as_list(claim["better"])) * (1 if claim.get("matched") else max(1, len(as_list(claim.get("worse"))))))
    if lost and (settings or claim.get("together") or claim.get("pooled")):
        return "not run", None, []
    if claim.get("interval") == "examples":
        made, numbers = list(over_examples(claim, good)), []
    else:
        both = list(comparisons(claim, good)) if not lost else []
        if lost and claim.get("worse"):
            kept = [one for one in as_list(claim["worse"]) if one not in lost]
            better = [one for one in as_list(claim["better"]) if one not in lost]
            if claim.get("matched"):
                pairs = zip(as_list(claim["better"]), as_list(claim["worse"]), strict=True)
                left = [pair for pair in pairs if not set(pair) & set(lost)]
                better, kept = [pair[0] for pair in left], [pair[1] for pair in left]
            both = list(comparisons({**claim, "better": better, "worse": kept}, good)) if better and kept else []
        made = [sides(sample, claim) if len(sample) > 1 else None for _, sample in both]
        numbers = [number for shown, _ in both for number in shown]
    if not made:
        return "not run", None, []
    known = [one for one in made if one is not None]
    count = total if lost else len(made)
    fails = min(1.0, count * min(one[1] for one in known)) if known else None
    holds = max(one[0] for one in known) if len(known) == count else None
    p = min([1.0, *(2 * side for side in (holds, fails) if side is not None)])
    verdict = "draw" if p >= 0.05 else "holds" if holds is not None and (fails is None or holds < fails) else "fails"
    return ("not run", None, []) if lost and verdict != "fails" else (verdict, p, numbers)


def shows(cell, number):
    """Whether the text has the number, to three digits."""
    found = [float(text) for text in re.findall(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:e-?\d+)?", cell)]
    return any(abs(one - number) <= max(6e-3 * abs(number), 1e-9) for one in found)


def quoted(claim, papers):
    """Decimal numbers that the claim's paper, or another that it names as its place, does not have; none of log files."""
    if "authors' log" in claim["paper"]:
        return []
    named = {claim["of"], *(name.lower() for name in re.findall(r"\b(?:ADR|AMC|AVH|EL|GR)\b", claim["where"]))}
    text = "".join((papers / f"{name}.txt").read_text() for name in sorted(named))
    numbers = re.findall(r"(?<![\w.])\d+\.\d+", claim["paper"])

    def has(number):
        """As it is, without closing zeros, or, below 1, in percent."""
        forms = [number, number.rstrip("0"), *([f"{100 * float(number):g}"] if float(number) < 1 else [])]
        return any(re.search(rf"(?<![\d.]){re.escape(form)}(?!\d)", text) for form in forms)

    return [number for number in numbers if not has(number)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--count", type=int, default=30, help="claims to draw; 0: all")
    parser.add_argument("--papers", type=Path, help="folder with the papers as text")
    options = parser.parse_args()
    page = {found["id"]: found["rest"] for found in CELLS.finditer((ROOT / "docs/claims.md").read_text())}
    claims = register()
    names = sorted(page)
    count = min(options.count, len(names)) or len(names)
    drawn = sorted(random.Random(options.seed).sample(names, count))
    bad = 0
    for name in drawn:
        verdict, p, numbers = recompute(claims[name])
        shown, text = VERDICT.search(page[name]).groups()
        defects = [] if shown == verdict else [f"verdict {verdict}, the page has {shown}"]
        if p is not None and not text.strip().startswith("<") and abs(float(text) - p) > 0.06 * p:
            defects.append(f"p {p:.3g}, the page has {text}")
        defects += [f"{number:.4g} is not on the page" for number in numbers if not shows(page[name], number)]
        if options.papers:
            defects += [f"{number} is not in the paper" for number in quoted(claims[name], options.papers)]
        bad += bool(defects)
        print(f"{name:45} {verdict:8} {'' if p is None else f'{p:.2g}':8} {'; '.join(defects) or 'as on the page'}")
    print(f"{len(drawn)} claims, {bad} with a defect")
    return bad


if __name__ == "__main__":
    sys.exit(main())
