"""AuditResult to report on: scikit-learn's digits with a tenth of the labels wrong, really trained; and names that mean harm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

import mohs
from mohs.audit.gallery_rows import group_rows
from mohs.audit.result import AuditResult
from mohs.audit.thumbnails import picture
from mohs.data.examples import LeftOut
from mohs.hardness.noise_rate import estimate_noise, suggest_emphasis
from mohs.hardness.table import add_columns, column, make_table

EPOCHS, BINS = 20, 5
HOSTILE = [
    "</script><script>window.hit = 1</script>",
    '"><img src=x onerror="window.hit = 1">',
    "\u202egnp.exe\u202c",
    "=cmd|' /C calc'!A0",
    "bell\x07 nul\x00 esc\x1b",
    "{{ 7 * 7 }}${window.hit = 1}",
    "'quoted', \"twice\"\nand on two lines",
    "& a <b>bold</b> name",
]


def train(seed: int = 0) -> dict[str, Any]:
    """A small network on digits with every tenth label wrong: GCE, recorded."""
    torch.manual_seed(seed)
    pixels, truth = (torch.tensor(a) for a in load_digits(return_X_y=True))
    x, held = pixels.float() / 16, torch.arange(len(truth)) % 6 == 0
    pixels, x_held, y_held = pixels[~held], x[held], truth[held]
    x, given = x[~held], truth[~held].clone()
    given[::10] = (given[::10] + 3) % 10
    body, head = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()), torch.nn.Linear(64, 10)
    loss, recorder = mohs.GeneralizedCrossEntropyLoss(q=0.7), mohs.Recorder(len(x), head=head)
    optimizer = torch.optim.AdamW([*body.parameters(), *head.parameters()], lr=3e-3)
    history, courses = [], []
    for epoch in range(EPOCHS):
        total = 0.0
        for ids in torch.randperm(len(x)).split(64):
            features = body(x[ids])
            value = loss(head(features), given[ids])
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
            recorder.update(ids, head(features).detach(), given[ids], features.detach())
            total += value.item() * len(ids)
        with torch.no_grad():
            z, f = head(body(x)), body(x)
            right = (z.argmax(1) == given).float()
            scored = (head(body(x_held)).argmax(1) == y_held).float().mean()
        courses.append((f.norm(dim=1), mohs.avh(f, head.weight.detach(), given), right))
        history.append({"epoch": epoch, "loss": total / len(x), "accuracy": float(right.mean()), "val_accuracy": float(scored)})
    with torch.no_grad():
        probs = head(body(x_held)).softmax(1)
    return {
        "recorder": recorder,
        "history": history,
        "courses": courses,
        "pixels": pixels,
        "held": (probs.numpy(), y_held.numpy()),
    }


def by_bin(courses: list[Any], grades: np.ndarray) -> dict[str, np.ndarray]:
    bins = [(grades - 1) * BINS // 10 == b for b in range(BINS)]
    found = {
        name: np.array([[float(epoch[i][torch.tensor(own)].mean()) for own in bins] for epoch in courses])
        for i, name in enumerate(("norm", "avh", "accuracy"))
    }
    return {"epoch": np.arange(len(courses)), **found}


def digits_result() -> AuditResult:
    run = train()
    table = mohs.verdict(run["recorder"].table(classes=[str(i) for i in range(10)]))
    estimate = estimate_noise(table=table)
    grades = np.asarray(table.column("mohs").to_pylist())

    def thumbnails(rows: Any) -> list[Any]:
        return [picture((run["pixels"][row] * 15.9).to(torch.uint8).view(1, 8, 8)) for row in rows]

    return AuditResult(
        table=table,
        name="scikit-learn's digits, a tenth of the labels wrong",
        data_hash="d1g175c0ffee0001",
        classes=[str(i) for i in range(10)],
        estimate=estimate,
        chosen="gce:q=0.7",
        reason=suggest_emphasis(estimate).reason,
        history=run["history"],
        dynamics=by_bin(run["courses"], grades),
        held_out=run["held"],
        thumbnails=thumbnails,
        left_out=[LeftOut("scan/0991.png", "truncated image"), LeftOut("odd\udc80name.png", "not an image")],
        facts={
            "model": "mlp(64)",
            "seconds": 1.25,
            "device": "cpu",
            "seed": 0,
            "command": "mohs audit digits",
            "versions": {"torch": "2.15"},
        },
    )


def judged(table: Any) -> Any:
    """The table with verdicts by a rule of these tests, so that what the page shows does not hang on the library's rule."""
    margin, v = column(table, "margin"), column(table, "variability")
    q = 1 / (1 + np.exp(-4 * margin / np.median(np.abs(margin))))
    undecided = 1 - (1 - 4 * q * (1 - q)) * (1 - (2 * v) ** 2)
    hard = (np.argsort(np.argsort(-margin)) / max(len(margin) - 1, 1)) ** 4
    settled = q * (1 - undecided)
    p = {"easy": settled * (1 - hard), "hard": settled * hard, "ambiguous": q * undecided, "mislabeled": 1 - q}
    verdicts = [list(p)[i] for i in np.stack(list(p.values())).argmax(0)]
    given, new = (table.column(name).to_pylist() for name in ("label", "predicted"))
    suggested = [b if name == "mislabeled" else a for a, b, name in zip(given, new, verdicts, strict=True)]
    chances = {f"p_{name}": values for name, values in p.items()}
    return add_columns(table, {**chances, "verdict": verdicts, "suggested_label": suggested})


def synthetic_table(count: int, classes: list[Any], *, seed: int = 0, paths: bool = True) -> Any:
    """A table of this many rows with margins of two kinds, as a tenth of wrong labels would give."""
    rng = np.random.default_rng(seed)
    label = rng.integers(len(classes), size=count)
    wrong = rng.random(count) < 0.1
    margin = np.where(wrong, rng.normal(-3, 2, count), rng.normal(4, 2.5, count))
    predicted = np.where(margin < 0, (label + 1 + rng.integers(len(classes) - 1, size=count)) % len(classes), label)
    confidence = 1 / (1 + np.exp(-margin))
    mean = np.clip(confidence * 0.8 + rng.normal(0.05, 0.08, count), 0, 1)
    columns: dict[str, Any] = {
        "id": np.arange(count), "label": [classes[i] for i in label], "predicted": [classes[i] for i in predicted],
        "margin": margin, "confidence": confidence, "mean_confidence": mean,
        "variability": np.clip(0.45 * np.sqrt(np.clip(4 * mean * (1 - mean), 0, 1)) * rng.beta(4, 2, count), 0, 0.5),
        "aum": margin + rng.normal(0, 0.5, count),
    }  # fmt: skip
    if paths:
        columns["path"] = [f"train/{classes[i]}/image_{place:06}.jpg" for place, i in enumerate(label)]
    return judged(mohs.verdict(make_table(columns, classes=classes)))


def hostile_result() -> AuditResult:
    """Every name that can come from outside is an attack."""
    table = synthetic_table(400, HOSTILE)
    ids = [f"{HOSTILE[i % len(HOSTILE)]}{i}" for i in range(len(table))]
    return AuditResult(
        table=add_columns(table, {"id": ids, "path": [f"{name}.png" for name in ids]}),
        name=HOSTILE[0] + "\u202e\udcff",
        data_hash="</script><script>window.hit = 1</script>",
        classes=HOSTILE,
        chosen="gce:q=0.7",
        reason=HOSTILE[1],
        left_out=[LeftOut(f"{name}\udc80", HOSTILE[0]) for name in HOSTILE],
        facts={HOSTILE[0]: HOSTILE[1], "model": HOSTILE[1], "command": HOSTILE[0] + "\udc80"},
        history=[{"epoch": i, "loss": 1.0 / (i + 1), f"{HOSTILE[0]}accuracy": 0.5} for i in range(3)],
        held_out=(np.eye(len(HOSTILE))[np.arange(40) % 8] * 0.92 + 0.01, (np.arange(40) // 2) % 8),
    )


SENTENCES = ["The bank shut my account without a word of warning.", "Free entry! Text WIN to 80082 now.", "See you at six, then?"]
ODD_TEXTS = [
    "a long word " * 60,
    "",
    "שלום, איפה הכרטיס שלי?",
    "</bdi></p><script>window.hit = 1</script>\u202eevil\x07\nnext line",
    None,
]


def text_result() -> AuditResult:
    """An audit of short texts; those that are probably mislabeled begin with ODD_TEXTS."""
    table = synthetic_table(300, ["complaint", "spam", "personal"], paths=False)
    texts: list[str | None] = [f"{SENTENCES[i % 3]} ({i})" for i in range(len(table))]
    for row, text in zip(group_rows(table)["mislabeled"], ODD_TEXTS, strict=False):
        texts[row] = text
    return AuditResult(add_columns(table, {"text": texts}), "messages", "7e47", ["complaint", "spam", "personal"])


@pytest.fixture(scope="session")
def texts() -> AuditResult:
    return text_result()


@pytest.fixture(scope="session")
def digits() -> AuditResult:
    return digits_result()


@pytest.fixture(scope="session")
def hostile() -> AuditResult:
    return hostile_result()


@pytest.fixture(scope="session")
def synthetic() -> Callable[..., Any]:
    return synthetic_table
