"""The rounds of a self-training: how much each believes, what is filed of it, and which network to take without target labels.

    portion of round r = min(start + (r − 1) step, most)

A round's line says what was selected (how many; mean AVC, confidence and length of features of those, as the network that chose
them saw them; the share of right labels, where labels are known) and how the network trained on them does on the whole target.
Labels of the target serve only for these numbers: nothing is chosen by them. Labels under 0 are unknown.
Chen et al., "Angular visual hardness" (ICML 2020), Table 4 and Figure 6.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mohs._core.errors import DataError
from mohs._core.files import written_whole
from mohs._core.validation import check_between, check_choice
from mohs.adapt.thresholds import Seen, Selected
from mohs.data.examples import Examples
from mohs.train.checkpoint import load_tree, save_tree

Line = dict[str, Any]
CRITERIA: dict[str, int] = {"last": 0, "source_accuracy": 1, "target_entropy": -1, "target_avc": 1}  # 1: higher is better
Portion = float | Sequence[float]


def portion_at(portion: Portion, number: int) -> float:
    """The portion of round 1, 2, ...: a number for all, or (start, step, most)."""
    start, step, most = checked_portion(portion)
    return min(start + (number - 1) * step, most)


def checked_portion(portion: Portion) -> tuple[float, float, float]:
    """(start, step, most), or an error that says what is wrong."""
    parts = (portion, 0.0, portion) if isinstance(portion, int | float) else tuple(portion)
    if len(parts) != 3:
        raise ValueError(f"portion must be a number, or three: start, step and most, got {portion!r}")
    start, step, most = (float(part) for part in parts)
    check_between("portion: start", start, 0, 1, ends="(]")
    check_between("portion: step", step, 0, 1)
    check_between("portion: most", most, start, 1)
    return start, step, most


def choice_line(seen: Seen, chosen: Selected, rival: Selected, target: Examples) -> Line:
    """What was selected; rival: by another selection from the same outputs."""
    own = torch.arange(len(chosen)), chosen.labels
    log_p, avc = seen.log_p[chosen.places], seen.avc[chosen.places]
    lengths = torch.linalg.vector_norm(seen.features[chosen.places].double(), dim=1)
    counts = torch.bincount(chosen.labels, minlength=log_p.shape[1])
    only = only_in(chosen, rival)
    line: Line = {
        "selected": len(chosen),
        "avc": mean(avc[own]),
        "confidence": mean(log_p[own].exp()),
        "norm": mean(lengths),
        "only_here": len(only),
        "classes_without": [str(target.classes[k]) for k in (counts == 0).nonzero().flatten().tolist()],
    }
    truth = target.labels[chosen.places]
    right = (truth == chosen.labels)[truth >= 0]
    return line | ({"true": mean(right.double())} if len(right) else {})


def only_in(chosen: Selected, rival: Selected) -> Tensor:
    """The places that the first selected and the other did not."""
    return chosen.places[~torch.isin(chosen.places, rival.places)]


def outcome_line(seen: Seen, target: Examples, before: Seen | None) -> Line:
    """How the network does on the target: without its labels, and with those that are known."""
    log_p, predicted = seen.log_p, seen.logits.argmax(1)
    line: Line = {
        "target_avc": mean(seen.avc.max(1).values),
        "target_entropy": mean(-(log_p.exp() * log_p).sum(1)),
        "target_confidence": mean(log_p.max(1).values.exp()),
    }
    if before is not None:
        line["changed"] = mean((predicted != before.logits.argmax(1)).double())
    known = target.labels >= 0
    return line | ({"target_accuracy": mean((predicted == target.labels)[known].double())} if known.any() else {})


def mean(values: Tensor) -> float | None:
    """The mean, None of nothing."""
    return float(values.double().mean()) if len(values) else None


def best_round(lines: Sequence[Mapping[str, Any]], by: str = "last") -> int:
    """The round whose network to take, by what is known without target labels; the later of equals."""
    check_choice("by", by, list(CRITERIA))
    if by == "last":
        return int(lines[-1]["round"])
    missing = [line["round"] for line in lines if line.get(by) is None]
    if missing:
        raise DataError(f"round {missing[0]} has no {by}: validation must be over 0 for source_accuracy")
    return int(max(lines, key=lambda line: (CRITERIA[by] * line[by], line["round"]))["round"])


def save_choice(chosen: Selected, only: Tensor, line: Line, path: Path) -> None:
    """Keep what a round is to train on, before it does; only: the places that another selection would not have taken."""
    soft = {} if chosen.soft is None else {"soft": chosen.soft}
    save_tree({"places": chosen.places, "labels": chosen.labels, **soft, "only": only, "line": line}, path)


def load_choice(path: Path) -> tuple[Selected, Line]:
    """What `save_choice` kept, without `only`."""
    tree = load_tree(path)
    return Selected(tree["places"], tree["labels"], tree.get("soft")), tree["line"]


def load_only(path: Path) -> Tensor:
    """What `save_choice` kept as `only`."""
    only: Tensor = load_tree(path)["only"]
    return only


def write_lines(lines: Sequence[Line], path: Path) -> None:
    """A line a round."""
    with written_whole(path) as part:
        part.write_text("".join(json.dumps(line) + "\n" for line in lines))


def read_lines(path: Path) -> list[Line]:
    """The lines that there are."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def told(line: Line) -> str:
    """A round in a sentence."""
    number = line.get("selected")
    parts = ["source only" if number is None else f"{number:,} selected" if number else "nothing selected"]
    for name, word in (("true", "right"), ("target_accuracy", "target accuracy"), ("source_accuracy", "source accuracy")):
        if line.get(name) is not None:
            parts.append(f"{word} {line[name]:.4f}")
    return f"round {line['round']}: {', '.join(parts)}"
