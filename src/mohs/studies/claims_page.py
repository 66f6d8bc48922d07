"""`docs/claims.md`: every claim of the papers with its verdict, after a summary that takes five minutes to read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mohs._core.errors import DataError
from mohs.studies.claims import REGISTER, problems, read_register, verdict_of
from mohs.studies.evidence import VERDICTS, Claim, Verdict
from mohs.studies.study_page import table

PAPERS = {
    "adr": "Adaptive Discriminative Regularization",
    "amc": "Angular Margin Contrastive",
    "avh": "Angular Visual Hardness",
    "el": "Encouraging Loss",
    "gr": "Gradient Rescaling",
}
PAGE = Path("docs") / "claims.md"
MEANING = {
    "holds": "What to believe: these held here",
    "fails": "What not to believe: these came out the other way, or short of what they say",
    "draw": "What made no difference that these runs could show",
}
Judged = list[tuple[Claim, Verdict]]


def claims_page(root: Path, *, register: Path = REGISTER) -> str:
    """The page, its verdicts computed from the results committed under root."""
    claims = read_register(register)
    judged = [(claim, verdict_of(claim, root)) for claim in claims]
    sources = list(dict.fromkeys(claim.source for claim in claims))
    lines = [
        "# The papers' claims, and what came of them here",
        "",
        *_opening(judged),
        "",
        _counts(judged, sources),
        *_summary(judged),
    ]
    for source in sources:
        lines += ["", f"## {_named(source)}", "", _detail([pair for pair in judged if pair[0].source == source], root)]
    return "\n".join(lines) + "\n"


def write_claims_page(root: Path, *, register: Path = REGISTER) -> Path:
    """Check that every claim can be traced, then write the page; what cannot be traced is an error that lists it."""
    found = problems(read_register(register), root)
    if found:
        raise DataError("the register of claims has problems:\n" + "\n".join(f"  {one}" for one in found))
    page = claims_page(root, register=register)
    (root / PAGE).parent.mkdir(parents=True, exist_ok=True)
    (root / PAGE).write_text(page)
    return root / PAGE


def _opening(judged: Judged) -> list[str]:
    counted = _counted(judged)
    run = sum(verdict.verdict != "not run" for _, verdict in counted)
    twice = sum(claim.again is not None and verdict.verdict != "not run" for claim, verdict in judged)
    return [
        "Written by `mohs study --claims` from the register in `src/mohs/study/claims/` and the results in `results/`: "
        "do not edit it by hand.",
        "",
        f"{len(counted)} claims of {len({claim.source for claim, _ in counted})} papers; {run} were put to a test here"
        f"{f', {twice} of them on a second counterpart, which counts where the first was not run' if twice else ''}. "
        "A claim *holds* where our counterpart shows it (paired over seeds, p < .05; by the margin that is stated; by a 95 % "
        "interval within or beyond what is stated; or by a test of the mathematics), *fails* where it shows the opposite, or a "
        "gain short of the margin, and "
        "is a *draw* where the runs cannot tell. Rows whose networks did not learn count as not run. A verdict is about our "
        "counterpart, on the data, networks and budgets that stand beside it: it proves nothing about others. Every claim is "
        "judged by itself; the page of a study corrects for the number of its rows, and may be stricter.",
        "",
        "CE and CCE are cross-entropy; EL LE e is the Encouraging Loss with its bonus as it is up to p = e and straight from "
        "there (LE 1: throughout, the normal bonus); GR(β, λ) is Gradient Rescaling, its focus set by λ and its spread by β; LS "
        "is label smoothing.",
    ]


def _counted(judged: Judged) -> Judged:
    """Each claim once: as its second counterpart has it, where the first was not run."""
    again = {claim.again: (claim, verdict) for claim, verdict in judged if claim.again and verdict.verdict != "not run"}
    firsts = [(claim, verdict) for claim, verdict in judged if claim.again is None]
    return [
        again.get(claim.id, (claim, verdict)) if verdict.verdict == "not run" else (claim, verdict) for claim, verdict in firsts
    ]


def _counts(judged: Judged, sources: Sequence[str]) -> str:
    judged, rows = _counted(judged), []
    for source in sources:
        own = [verdict.verdict for claim, verdict in judged if claim.source == source]
        rows.append([_named(source), str(len(own)), *(str(own.count(name)) for name in VERDICTS)])
    every = [verdict.verdict for _, verdict in judged]
    rows.append(["**all**", str(len(every)), *(str(every.count(name)) for name in VERDICTS)])
    return table(["paper", "claims", *VERDICTS], rows)


def _summary(judged: Judged) -> list[str]:
    """The claims by verdict, a line each: the headlines, or all where none is marked as one."""
    heads = {claim.id for claim, _ in judged if claim.headline and claim.again is None}
    wanted = [pair for pair in judged if pair[0].id in heads or pair[0].again in heads] or judged
    lines = []
    for verdict, title in MEANING.items():
        own = [(claim, found) for claim, found in wanted if found.verdict == verdict]
        if own:
            lines += ["", f"**{title}**", ""]
            lines += [_line(claim, found) for claim, found in own]
    about = _counted(wanted)
    late = sum(found.verdict == "not run" for _, found in about)
    return [*lines, "", f"The summary covers {len(about)} main claims; {late} of them have not been run yet."]


def _line(claim: Claim, found: Verdict) -> str:
    """A claim in the summary: what it says, what was run for it, and what else to know."""
    reason = f" {claim.reason}" if claim.computed and claim.reason else ""
    return f"- {claim.what} ({_named(claim.source)}, {claim.where}{_number(found)}.) *Run here:* {claim.counterpart}{reason}"


def _detail(judged: Judged, root: Path) -> str:
    rows = []
    for claim, found in judged:
        named = [path for path in (claim.recipe, claim.results) if path is not None and (root / path).is_file()]
        files = [f"[{Path(path).name}](../{path})" for path in named]
        files += [f"`{claim.test}`"] if claim.test is not None else []
        surroundings = ", ".join(filter(None, (_number(found).strip(", "), found.hardware, found.date)))
        rows.append(
            [
                f"`{claim.id}`<br>{claim.where}",
                claim.what,
                claim.paper,
                claim.counterpart,
                f"**{found.verdict}**",
                "<br>".join(filter(None, (found.evidence, surroundings))),
                "<br>".join(files),
            ]
        )
    return table(["claim", "what it says", "the paper's numbers", "what we ran", "verdict", "evidence", "traced to"], rows)


def _named(source: str) -> str:
    return PAPERS.get(source, source)


def _number(found: Verdict) -> str:
    return "" if found.n is None else f", n = {found.n}"
