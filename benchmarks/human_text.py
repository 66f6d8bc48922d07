"""The README of the human-hardness results, from the rows that `human_score.py` measured; every verdict in it is computed."""

from __future__ import annotations

from statistics import mean

import numpy as np

from machine import machine

TOGETHER = "all networks"
FIRST = {"AVH": 0.364, "confidence": 0.364, "mean margin": 0.380}  # of one ResNet-9, 45 epochs
CLAIM, AHEAD = ("holds", "draw", "fails"), ("ahead", "draw", "behind")
Row = dict[str, object]
Facts = dict[tuple[str, str], dict[str, float]]


def readme(
    rows: list[Row], tests: list[Row], bins: list[Row], facts: Facts, halves: list[Row], agreement: np.ndarray, trained: str
) -> str:
    about = machine()
    here = ", ".join(f"{name} {about[name]}" for name in ("cpu", "torch", "mohs", "commit", "date"))
    parts = [
        "# Hardness scores and people: CIFAR-10H",
        f"How well each hardness score of a network orders the {len(agreement):,} CIFAR-10 test images as people do. People: "
        "the share of some 51 annotators an image who chose its label (Peterson et al., CIFAR-10H). "
        f"{(agreement == 1).mean():.0%} of the images are unanimous, so ties are many, and even half of the panel predicts the "
        "other half at .54 only. A figure is the correlation of the score with human disagreement, positive where both agree; "
        "intervals are 95 % percentiles over resampled images (what another training would change shows in the seeds).",
        f"Networks trained with cross-entropy on the clean labels: {trained}. Scored: {here}.",
        "```\nMOHS_DATA=... python benchmarks/human_train.py --epochs 25 --out FOLDER      # a GPU\n"
        "MOHS_DATA=... python benchmarks/human_score.py --outputs FOLDER\n```",
        "All figures, also Kendall's τ-b and Pearson's r: `cifar10h.csv`, `cifar10h-tests.csv`, `cifar10h-bins.csv`.",
        "## Which score follows people best (Spearman)",
        *score_table(rows, facts),
        best(rows, tests, halves),
        "## “AVH correlates better with human hardness than confidence” (Chen et al., Tables 2 and 6-9)",
        *claim(tests),
        "## Within bins of human agreement (the paper's Table 1; Spearman)",
        *bin_table(bins, agreement),
        "## Other claims",
        *others(rows, bins, facts),
    ]
    return "\n\n".join(parts) + "\n"


def nets(facts: Facts) -> list[str]:
    return list(dict.fromkeys(name for name, _ in facts))


def pick(rows: list[Row], **wanted: object) -> list[Row]:
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def short(value: float, sign: str = "") -> str:
    return format(value, f"{sign}.3f").replace("0.", ".", 1)


def score_table(rows: list[Row], facts: Facts) -> list[str]:
    spearman = pick(rows, kind="spearman")
    strength = lambda name: mean(r["value"] for r in pick(spearman, score=name) if r["network"] != TOGETHER)
    names = sorted(dict.fromkeys(r["score"] for r in spearman), key=strength, reverse=True)
    seeds = max(len([seed for name, seed in facts if name == net]) for net in nets(facts))
    lines = [
        f"| score | {' | '.join(nets(facts))} | the {len(facts)} networks' ranks averaged |",
        "|---" * (len(nets(facts)) + 2) + "|",
    ]
    for name in names:
        cells = [spread([r["value"] for r in pick(spearman, score=name, network=net)]) for net in nets(facts)]
        (whole,) = pick(spearman, score=name, network=TOGETHER)
        cells.append(f"{short(whole['value'])} [{short(whole['low'])}, {short(whole['high'])}]")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    width = mean((r["high"] - r["low"]) / 2 for r in spearman if r["network"] != TOGETHER)
    note = (
        f"Mean of {seeds} seeds (lowest to highest); the interval of a single network is about ± {short(width)}. `a + b` and "
        "`all scores`: the mean of ranks, equal weights. Margin, loss and confidence are one order; but confidence, in float32, "
        f"is exactly 1 for up to {max(f['sure'] for f in facts.values()):.0%} of a network's images, which are ties."
    )
    return ["\n".join(lines), note]


def spread(values: list[float]) -> str:
    return f"{short(mean(values))} ({short(min(values))} to {short(max(values))})"


def best(rows: list[Row], tests: list[Row], halves: list[Row]) -> str:
    spearman = pick(rows, kind="spearman")
    strength = lambda name: mean(r["value"] for r in pick(spearman, score=name) if r["network"] != TOGETHER)
    single = max((r["score"] for r in pick(spearman, combined=0)), key=strength)
    top = max(pick(spearman, combined=0), key=lambda r: r["value"])
    within = max((r["score"] for r in pick(spearman, combined=1) if r["network"] != TOGETHER), key=strength)
    combined = max(pick(spearman, combined=1), key=lambda r: r["value"])
    first = ", ".join(f"{name} {short(value)}" for name, value in FIRST.items())
    chosen, other = mean(r["chosen"] for r in halves), mean(r["other"] for r in halves)
    named = " and ".join(dict.fromkeys(f"`{r['score']}` over {r['network']}" for r in halves))
    return (
        f"**Best single score:** `{single}`, {short(strength(single))} on average over the networks; the highest of one network "
        f"is `{top['score']}` of {top['network']} (seed {top['seed']}), {interval(top)}. `mean_margin` against `confidence`, "
        f"paired: {tally(tests, 'spearman', 'mean_margin', 'confidence', AHEAD)} of the networks. "
        f"**Best combined:** `{combined['score']}` over {combined['network']}, {interval(combined)}; within one network "
        f"`{within}`, {short(strength(within))} on average. First figures to beat: {first}. To see how "
        f"far the best of so many is flattered, choose on one half of the images and read on the other: it is {named}, with "
        f"{short(chosen)} where chosen and {short(other)} elsewhere, the mean of both ways."
    )


def interval(row: Row) -> str:
    return f"{short(row['value'])} [{short(row['low'])}, {short(row['high'])}]"


def verdict(row: Row, words: tuple[str, str, str] = CLAIM) -> str:
    """Whether the first score is the stronger: above 0 with the whole interval, across it, or below it."""
    return words[0] if row["low"] > 0 else words[2] if row["high"] < 0 else words[1]


def claim(tests: list[Row]) -> list[str]:
    shown = pick(tests, first="avh", second="confidence", kind="spearman")
    lines = ["| network | seed | AVH | confidence | difference | Fisher's Z (p, one-sided) | Steiger's z (p) | claim |"]
    lines += ["|---" * 8 + "|"]
    for r in shown:
        gap = f"{short(r['difference'], '+')} [{short(r['low'], '+')}, {short(r['high'], '+')}]"
        lines.append(
            f"| {r['network']} | {r['seed']} | {short(r['first_value'])} | {short(r['second_value'])} | {gap} "
            f"| {r['z_fisher']} ({r['p_fisher_one_sided']}) | {r['z_steiger']} ({r['p_steiger']}) | {verdict(r)} |"
        )
    number = len([r for r in shown if r["network"] != TOGETHER])
    said = lambda kind, second: tally(tests, kind, "avh", second, CLAIM)
    note = (
        f"**Verdict: {said('spearman', 'confidence')} of {number} networks** (by the interval of the paired bootstrap). "
        f"The same by Kendall's τ: {said('kendall', 'confidence')}; by Pearson's r: {said('pearson', 'confidence')}. "
        f"Against the margin: {said('spearman', 'margin')} (Spearman), {said('kendall', 'margin')} (Kendall), "
        f"{said('pearson', 'margin')} (Pearson). "
        "Fisher's test takes the two correlations for independent, as the paper does; they share images and people, which "
        "Steiger's and the bootstrap allow for. The paper found AVH ahead on ImageNet (.360 to .325 for ResNet-50), with 1,000 "
        "classes and larger images; this does not repeat that, it says that the claim is not general."
    )
    return ["\n".join(lines), note]


def tally(tests: list[Row], kind: str, first: str, second: str, words: tuple[str, str, str]) -> str:
    """How many networks say what: "fails for 6"."""
    own = [r for r in pick(tests, first=first, second=second, kind=kind) if r["network"] != TOGETHER]
    said = [verdict(r, words) for r in own]
    return ", ".join(f"{word} for {said.count(word)}" for word in words if word in said)


def bin_table(bins: list[Row], agreement: np.ndarray) -> list[str]:
    edges = list(dict.fromkeys((r["from"], r["to"]) for r in bins))
    names = ["1" if low == high else f"{low:g} to {high:g}" for low, high in edges]
    sizes = [pick(bins, **{"from": low, "to": high})[0]["n"] for low, high in edges]
    lines = ["| network | score | " + " | ".join(f"{name} (n = {n:,})" for name, n in zip(names, sizes, strict=True)) + " |"]
    lines += ["|---" * (len(edges) + 2) + "|"]
    for net in dict.fromkeys(r["network"] for r in bins):
        for score in dict.fromkeys(r["score"] for r in bins):
            mine = [pick(bins, network=net, score=score, **{"from": low, "to": high}) for low, high in edges]
            cells = ["none" if np.isnan(part[0]["value"]) else spread([r["value"] for r in part]) for part in mine]
            lines.append(f"| {net} | {score} | {' | '.join(cells)} |")
    few = [int(((agreement > low) & (agreement <= high)).sum()) for low, high in ((-1, 0.2), (0.2, 0.4))]
    note = "Among the unanimous there is nothing to correlate. Of the paper's bins the first two would hold "
    note += f"{few[0]} and {few[1]} images."
    return ["\n".join(lines), note]


def others(rows: list[Row], bins: list[Row], facts: Facts) -> list[str]:
    lines = ["| network | features | seed | accuracy | mean AVH | mean norm |", "|---" * 6 + "|"]
    width = {"resnet9": 512, "resnet20": 64, "vgg": 256}
    for (name, seed), f in sorted(facts.items(), key=lambda item: -item[1]["accuracy"]):
        cells = f"{name} | {width.get(name, '')} | {seed} | {f['accuracy']:.2%} | {f['mean_avh']:.4f} | {f['mean_norm']:.1f}"
        lines.append(f"| {cells} |")
    ranked = sorted(nets(facts), key=lambda net: -mean(f["accuracy"] for key, f in facts.items() if key[0] == net))
    means = [mean(f["mean_avh"] for key, f in facts.items() if key[0] == net) for net in ranked]
    falls = means == sorted(means)
    order = f"by accuracy {', '.join(ranked)}, with mean AVH {', '.join(short(value) for value in means)}"
    norms = [r["value"] for r in pick(rows, kind="spearman", score="norm") if r["network"] != TOGETHER]
    scaled = [r for r in pick(rows, kind="spearman", score="norm_in_class") if r["network"] != TOGETHER]
    lowest = min(r["low"] for r in scaled)
    climbs = all(rising(bins, key) for key in facts)
    return [
        "\n".join(lines),
        f"**Observation 4, “better models have lower mean AVH”: {'holds' if falls else 'fails'}** between architectures: "
        f"{order}. The number of features differs as well, and may be what the mean goes by: three widths cannot tell.",
        f"**Hypothesis 4, the norm says nothing of human hardness: {'fails' if lowest > 0 else 'is not refuted'}.** Short "
        f"features go with disagreement: {spread(norms)} raw, {spread([r['value'] for r in scaled])} scaled within the class as "
        f"in the paper (which found .0017); the lowest end of any interval is {short(lowest)}.",
        f"**Observation 3 at the end of training**, mean AVH ordered by human agreement: {'holds' if climbs else 'fails'} (it "
        f"{'rises' if climbs else 'does not rise'} from bin to bin as agreement falls, for every network; `cifar10h-bins.csv`). "
        "Observations 1 and 2 need the epochs one by one: see `observations.md`.",
    ]


def rising(bins: list[Row], key: tuple[str, str]) -> bool:
    means = [r["mean_score"] for r in pick(bins, network=key[0], seed=key[1], score="avh")]
    return means == sorted(means, reverse=True)
