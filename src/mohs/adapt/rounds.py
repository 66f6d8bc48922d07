"""The rounds of self-training: the share each selects, the record of each, and model selection without target labels.

    portion of round r = min(start + (r − 1) step, most)

The line of a round records what was selected (number; mean AVC, confidence and feature norm under the network that selected;
share of correct labels, if labels are known) and how the network trained on it performs on the whole target.
Target labels are used for these numbers only, never for selection. Negative labels are unknown.
Chen et al., "Angular visual hardness" (ICML 2020), Table 4 and Figure 6.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor

from mohs._core.checksums import keep_checksums, reading
from mohs._core.errors import DataError
from mohs._core.files import written_whole
from mohs._core.validation import check_between, check_choice
from mohs.adapt.thresholds import Predictions, Selected
from mohs.data.examples import Examples
from mohs.hardness.table import write_table
from mohs.train.checkpoint import REPAIR, load_tree, save_tree

Line = dict[str, Any]
CRITERIA: dict[str, int] = {"last": 0, "source_accuracy": 1, "target_entropy": -1, "target_avc": 1}  # 1: higher is better
Portion = float | Sequence[float]


def portion_at(portion: Portion, number: int) -> float:
    """The portion of round 1, 2, ...; portion is a number, or (start, step, most)."""
    start, step, most = checked_portion(portion)
    return min(start + (number - 1) * step, most)


def checked_portion(portion: Portion) -> tuple[float, float, float]:
    """Validate the portion and return (start, step, most)."""
    parts = (portion, 0.0, portion) if isinstance(portion, int | float) else tuple(portion)
    if len(parts) != 3:
        raise ValueError(f"portion must be a number or (start, step, most), got {portion!r}")
    start, step, most = (float(part) for part in parts)
    check_between("portion: start", start, 0, 1, ends="(]")
    check_between("portion: step", step, 0, 1)
    check_between("portion: most", most, start, 1)
    return start, step, most


def choice_line(outputs: Predictions, chosen: Selected, rival: Selected, target: Examples) -> Line:
    """Describe what was selected; rival: the selection of another method from the same outputs."""
    own = torch.arange(len(chosen)), chosen.labels
    log_p, avc = outputs.log_p[chosen.places], outputs.avc[chosen.places]
    lengths = torch.linalg.vector_norm(outputs.features[chosen.places].double(), dim=1)
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
    """The rows that the first selected and the other did not."""
    return chosen.places[~torch.isin(chosen.places, rival.places)]


def outcome_line(outputs: Predictions, target: Examples, before: Predictions | None) -> Line:
    """Describe the network on the target: without labels, and its accuracy on known labels."""
    log_p, predicted = outputs.log_p, outputs.logits.argmax(1)
    line: Line = {
        "target_avc": mean(outputs.avc.max(1).values),
        "target_entropy": mean(-(log_p.exp() * log_p).sum(1)),
        "target_confidence": mean(log_p.max(1).values.exp()),
    }
    if before is not None:
        line["changed"] = mean((predicted != before.logits.argmax(1)).double())
    known = target.labels >= 0
    return line | ({"target_accuracy": mean((predicted == target.labels)[known].double())} if known.any() else {})


def mean(values: Tensor) -> float | None:
    """The mean; None of an empty tensor."""
    return float(values.double().mean()) if len(values) else None


def best_round(lines: Sequence[Mapping[str, Any]], by: str = "last") -> int:
    """The best round by a criterion that needs no target labels; the later of equals."""
    check_choice("by", by, list(CRITERIA))
    if by == "last":
        return int(lines[-1]["round"])
    missing = [line["round"] for line in lines if line.get(by) is None]
    if missing:
        raise DataError(f"round {missing[0]} has no {by}: source_accuracy needs a run with validation > 0")
    return int(max(lines, key=lambda line: (CRITERIA[by] * line[by], line["round"]))["round"])


def save_choice(chosen: Selected, only: Tensor, line: Line, path: Path) -> None:
    """Save what a round trains on; only: the rows that the other selection would not have selected."""
    keep_checksums(path.parent)
    soft = {} if chosen.soft is None else {"soft": chosen.soft}
    save_tree({"places": chosen.places, "labels": chosen.labels, **soft, "only": only, "line": line}, path)


def load_choice(path: Path) -> tuple[Selected, Line]:
    """Load what `save_choice` saved, without `only`."""
    tree = load_tree(path, lost="what the round trains on is lost", repair=again_from(path.parent))
    return Selected(tree["places"], tree["labels"], tree.get("soft")), tree["line"]


def load_only(path: Path) -> Tensor:
    """Load `only` of `save_choice`."""
    only: Tensor = load_tree(path, lost="what the round trains on is lost", repair=again_from(path.parent))["only"]
    return only


def again_from(folder: Path) -> str:
    """How to restore a damaged round."""
    return f"remove the folder {folder} and run the same command again"


def write_lines(lines: Sequence[Line], path: Path) -> None:
    """Write one line per round."""
    with written_whole(path) as part:
        part.write_text("".join(json.dumps(line) + "\n" for line in lines))


def read_lines(path: Path) -> list[Line]:
    """The lines of the finished rounds."""
    if not path.exists():
        return []
    with reading(path, lost="the numbers of the rounds are lost", repair=f"{REPAIR}; finished rounds are kept"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for number, line in enumerate(lines):
            if not isinstance(line, dict) or line.get("round") != number:
                raise ValueError(f"line {number + 1} is not that of round {number}")
        return lines


def describe_round(line: Line) -> str:
    """One sentence about a round."""
    number = line.get("selected")
    parts = ["source only" if number is None else f"{number:,} selected" if number else "nothing selected"]
    for name, word in (("true", "right"), ("target_accuracy", "target accuracy"), ("source_accuracy", "source accuracy")):
        if line.get(name) is not None:
            parts.append(f"{word} {line[name]:.4f}")
    return f"round {line['round']}: {', '.join(parts)}"


def write_target(target: Examples, outputs: Predictions, folder: Path, rounds: int) -> None:
    """Write FOLDER/target.parquet: the last network's predictions of each target example, and when it was first selected."""
    write_table(target_table(target, outputs, first_selected(folder, len(target), rounds)), folder / "target.parquet")


def target_table(target: Examples, outputs: Predictions, first: Tensor) -> pa.Table:
    """One row per example: id, path, label (if known), predicted, p_predicted, avc, norm, first_selected (null: never)."""
    top, predicted = outputs.log_p.max(1)
    names = [*target.classes, None]  # −1, unknown, is the last
    columns: dict[str, Any] = {"id": list(range(len(target))) if target.keys is None else list(target.keys)}
    if target.paths is not None:
        columns["path"] = list(target.paths)
    columns["label"] = [names[k] for k in target.labels.tolist()]
    columns["predicted"] = [names[k] for k in predicted.tolist()]
    columns["p_predicted"] = top.exp().numpy()
    columns["avc"] = outputs.avc.max(1).values.numpy()
    columns["norm"] = torch.linalg.vector_norm(outputs.features, dim=1).numpy()
    columns["first_selected"] = pa.array([round_ or None for round_ in first.tolist()], pa.int64())
    return pa.table(columns)


def first_selected(folder: Path, number: int, rounds: int) -> Tensor:
    """The first round (N,) in which each example was selected; 0: never."""
    found = torch.zeros(number, dtype=torch.long)
    for one in range(rounds, 0, -1):
        found[load_choice(folder / f"round-{one}" / "selected.safetensors")[0].places] = one
    return found
