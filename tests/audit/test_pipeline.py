"""The audit as a whole: wrong labels are found, nothing finished is lost, and what cannot be audited is reported."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from PIL import Image
from sklearn.metrics import average_precision_score

import mohs
from mohs._core.errors import DataError, RunError
from mohs.audit.judge_images import default_batch, default_epochs
from mohs.audit.options import AuditOptions
from mohs.audit.pipeline import demonstration, run_audit, with_excerpts
from mohs.audit.result import AuditResult, load_audit
from mohs.data.examples import Data, Examples
from mohs.data.noise import add_noise
from mohs.hardness.table import VERDICTS, make_table, write_table

ROW = ("p_easy", "p_hard", "p_ambiguous", "p_mislabeled", "margin")


def few(count: int = 120) -> Examples:
    return demonstration(0).train.take(torch.arange(count))


def as_features(examples: Examples) -> Examples:
    assert isinstance(examples.inputs, torch.Tensor)
    return Examples(examples.inputs.flatten(1).float() / 255, examples.labels, examples.classes, truth=examples.truth)


def is_flagged(table: pa.Table) -> np.ndarray:
    return np.array(table.column("verdict").to_pylist()) == "mislabeled"


def precision_and_recall(done: AuditResult) -> tuple[float, float]:
    facts = done.facts
    return facts["flagged and wrong"] / facts["flagged"], facts["flagged and wrong"] / facts["labels made wrong"]


def test_options_of_opening_the_data_are_arguments(tmp_path: Path) -> None:
    lines = [f"{i % 2 + i * 0.001},{'ab'[i % 2]},{'xyz'[i % 3]}" for i in range(60)]
    (tmp_path / "rows.csv").write_text("\n".join(["x,kind,label", *lines]))
    how: dict[str, Any] = {"issues": "none", "folds": 3, "device": "cpu"}
    done = mohs.audit(tmp_path / "rows.csv", label="kind", out=tmp_path / "a", **how)
    assert set(done.table.column("label").to_pylist()) == {"a", "b"}
    same = mohs.audit(tmp_path / "rows.csv", open_as={"label": "kind"}, text=None, out=tmp_path / "b", **how)
    assert same.facts["audit"] == done.facts["audit"]
    with pytest.raises(ValueError, match="label is given twice, as an argument and in open_as"):
        mohs.audit(tmp_path / "rows.csv", label="kind", open_as={"label": "kind"})
    with pytest.raises(TypeError, match="lable"):
        mohs.audit(tmp_path / "rows.csv", lable="kind")


# --- finding -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "seed"), [("images", 0), ("features", 1)])
def test_a_tenth_of_wrong_digits_is_found(kind: str, seed: int, tmp_path: Path) -> None:
    data = demonstration(seed).train.take(torch.arange(700))
    done = run_audit(data if kind == "images" else as_features(data), out=tmp_path, seed=seed, device="cpu")
    precision, recall = precision_and_recall(done)
    assert precision >= 0.85
    assert recall >= 0.85
    assert data.truth is not None
    wrong = (data.labels != data.truth).numpy()
    hits = wrong & is_flagged(done.table)
    suggested = np.array(done.table.column("suggested_label").to_pylist())
    assert (suggested[hits] == data.truth.numpy()[hits]).mean() > 0.9
    assert (suggested == np.array(done.table.column("label").to_pylist()))[~is_flagged(done.table)].all()
    assert done.estimate is not None
    assert done.estimate.low <= wrong.mean() <= done.estimate.high
    assert abs(done.shares["noise"] - wrong.mean()) < 0.03
    assert set(done.table.column("verdict").to_pylist()) <= set(VERDICTS)
    assert done.held_out is not None
    assert "caution" not in done.facts
    assert not list(tmp_path.glob("*-scores.safetensors"))  # only an interrupted audit needs them


def test_clean_digits_are_not_flagged(tmp_path: Path) -> None:
    found = demonstration(0).train
    assert found.truth is not None
    done = run_audit(found.relabeled(found.truth).take(torch.arange(500)), out=tmp_path, device="cpu")
    assert is_flagged(done.table).mean() <= 0.01
    assert done.estimate is not None
    assert done.estimate.kind == "none found"


def test_every_fourth_wrong_label_is_found_too(tmp_path: Path) -> None:
    clean = demonstration(0).train
    assert clean.truth is not None
    noisy = add_noise(clean.relabeled(clean.truth).take(torch.arange(500)), {"name": "symmetric", "rate": 0.25}, seed=0)
    precision, recall = precision_and_recall(run_audit(as_features(noisy), out=tmp_path))
    assert precision >= 0.85
    assert recall >= 0.85


def test_raw_texts(few_texts: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    pytest.importorskip("wordllama", reason="the text extra is not installed")
    file, wrong = few_texts
    told: list[str] = []
    done = run_audit(file, out=tmp_path, tell=told.append)
    flagged = is_flagged(done.table)
    assert wrong[flagged].mean() > 0.8
    assert (wrong & flagged).sum() > 0.8 * wrong.sum()
    assert done.table.column("text").to_pylist()[0].endswith("no. 0")
    assert any(line.startswith("Features: ") for line in told)
    assert "240 texts of 3 classes" in told[0]


def test_rows_of_numbers_are_shown_with_their_columns(tmp_path: Path) -> None:
    rows = torch.tensor([[0.1, 2.0], [1 / 3, 4e6]])
    table = make_table({"id": [0, 1]})
    columns = with_excerpts(table, Examples(rows, torch.tensor([0, 1]), ["a", "b"], name="n", columns=["x", "y"]))
    assert [json.loads(one) for one in columns.column("fields").to_pylist()] == [{"x": 0.1, "y": 2}, {"x": 0.3333333, "y": 4e6}]
    assert with_excerpts(table, Examples(rows, torch.tensor([0, 1]), ["a", "b"], name="n")) is table  # embeddings


def test_a_table_with_categories_dates_and_missing_values(few_rows: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    file, wrong = few_rows
    told: list[str] = []
    done = run_audit(file, out=tmp_path, tell=told.append)
    flagged = is_flagged(done.table)
    assert wrong[flagged].mean() > 0.8
    assert (wrong & flagged).sum() > 0.7 * wrong.sum()
    fields = json.loads(done.table.column("fields").to_pylist()[1])
    assert set(fields) == {"width", "height", "color", "day"}
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", fields["day"])
    assert "500 rows of 4 columns of 3 classes" in told[0]
    assert told[1] == "Note: constant columns dropped: 'nothing'"
    assert "4 columns: 2 numeric, 1 categorical, 1 date" in told[2]
    assert "constant columns dropped: 'nothing'" in done.facts["notes"]
    assert "boosted trees" in done.facts["model"]


@pytest.mark.parametrize("seed", [0, 1])
def test_a_few_categories_that_do_not_decide_the_class_are_not_wrong_labels(seed: int, tmp_path: Path) -> None:
    """Class, age and sex of a passenger tell who was saved in part: equal rows have different labels, none of them wrong."""
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.integers(4, size=2000), rng.random(2000) < 0.05, rng.random(2000) < 0.25]).astype(np.float32)
    saved = np.array([0.35, 0.2, 0.1, 0.2])[x[:, 0].astype(int)] + 0.5 * x[:, 2] + 0.1 * x[:, 1]
    done = run_audit((x, (rng.random(2000) < saved).astype(np.int64)), out=tmp_path)
    assert is_flagged(done.table).mean() <= 0.01


@pytest.mark.parametrize("loss", ["auto", "gce"])
def test_a_network_trained_on_the_images_flags_ranks_and_records(loss: str, tmp_path: Path) -> None:
    data = few(900)
    done = run_audit(data, out=tmp_path, embed="none", loss=loss, epochs=12, model="cnn:width=8", device="cpu")
    assert done.facts["flagged and wrong"] >= 0.6 * done.facts["labels made wrong"]
    assert done.facts["flagged and wrong"] >= 0.75 * done.facts["flagged"]
    assert data.truth is not None
    wrong = (data.labels != data.truth).numpy()
    assert average_precision_score(wrong, done.table.column("p_mislabeled").to_numpy()) > 0.8
    assert {"aum", "forgetting", "mean_confidence"} <= set(done.table.column_names)
    assert done.dynamics is not None
    assert len(done.history) == 12
    assert done.chosen == ("gce" if loss == "gce" else "cross_entropy")
    assert (tmp_path / "run" / "DONE").exists()


def test_a_user_function_embeds(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (300, 3, 24, 24), generator=generator, dtype=torch.uint8)
    true = torch.arange(300) % 3
    dark = 0.3 + 0.65 * torch.rand(300, 1, 1, generator=generator)  # more or less dark: the channel of the class
    images[torch.arange(300), true] = (dark * images[torch.arange(300), true]).to(torch.uint8)
    labels = torch.where(torch.arange(300) % 10 == 0, (true + 1) % 3, true)

    def brightness(inputs: Any) -> Any:
        return torch.as_tensor(inputs).float().mean((2, 3))

    done = run_audit(Examples(images, labels, ["a", "b", "c"], truth=true), embed=brightness, out=tmp_path, device="cpu")
    precision, recall = precision_and_recall(done)
    assert precision >= 0.8
    assert recall >= 0.6
    assert done.facts["features"].endswith("and pixels")


def test_higher_precision_flags_fewer(tmp_path: Path) -> None:
    data = as_features(few(200))
    sets = [is_flagged(run_audit(data, out=tmp_path / str(p), precision=p).table) for p in (0.5, 0.8, 0.97)]
    assert sets[0].sum() >= sets[1].sum() >= sets[2].sum() > 0
    assert not (sets[1] & ~sets[0]).any()
    assert not (sets[2] & ~sets[1]).any()


def test_the_report_and_the_default_folder(tmp_path: Path) -> None:
    done = mohs.audit(as_features(few()), runs=tmp_path)
    assert done.folder.parent == tmp_path
    assert done.folder.name.startswith("audit-data-")
    assert done.report is not None
    assert done.report.stat().st_size < 5e6
    assert load_audit(done.folder).table.equals(done.table)


# --- resuming ------------------------------------------------------------------------------------------------------------


class Stop:
    """Interrupts at the first line or event that matches."""

    def __init__(self, when: Callable[[Any], bool]) -> None:
        self.when = when

    def __call__(self, event: Any) -> None:
        if self.when(event):
            raise KeyboardInterrupt


AT = {f"at {step}": {"tell": Stop(lambda text, step=step: f" {step}: " in text)} for step in ("judge", "scores", "verdict")}
TRAINED = {
    "at the first epoch's end": {"watch": Stop(lambda e: "step" not in e or e["step"] == e["steps"])},
    "in the second epoch": {"watch": Stop(lambda e: e.get("epoch") == 1)},
    **AT,
}
SCORED = {
    "half-way": {"watch": Stop(lambda e: e["step"] == 3)},
    "at features": {"tell": Stop(lambda t: " features: " in t)},
    **AT,
}


@pytest.mark.parametrize("kind", ["network", "images", "table"])
def test_interrupted_and_resumed_gives_the_same_result(kind: str, few_rows: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    data: Any = {"network": few(), "images": few(), "table": few_rows[0]}[kind]
    options: dict[str, Any] = {"device": "cpu"}
    if kind == "network":
        options |= {"embed": "none", "epochs": 3, "model": "cnn:width=4"}
    whole = run_audit(data, out=tmp_path / "whole", **options).table
    for name, stop in {"network": TRAINED, "images": SCORED, "table": dict(list(SCORED.items())[:1])}[kind].items():
        out = tmp_path / name.replace(" ", "_").replace("'", "")
        with pytest.raises(KeyboardInterrupt):
            run_audit(data, out=out, **stop, **options)
        again = run_audit(data, out=out, **options).table
        for column in ROW:
            np.testing.assert_allclose(again.column(column).to_numpy(), whole.column(column).to_numpy(), err_msg=name)
        assert again.column("verdict").equals(whole.column("verdict")), name
        assert not list(out.glob("**/*.part*")), name
    told: list[str] = []
    run_audit(data, out=out, tell=told.append, **options)  # finished: nothing is computed again
    assert [line.split()[1] for line in told if line[1:3] == "/6"] == ["data:"]


def test_scores_of_an_interrupted_audit_are_kept(tmp_path: Path) -> None:
    events: list[Any] = []
    data = as_features(few())
    with pytest.raises(KeyboardInterrupt):
        run_audit(data, out=tmp_path, tell=Stop(lambda text: " scores: " in text))
    assert (tmp_path / "fold-scores.safetensors").exists()
    run_audit(data, out=tmp_path, watch=events.append)
    assert not [event for event in events if event.get("what") == "judging"]


def test_a_truncated_end_is_rewritten(tmp_path: Path) -> None:
    data = as_features(few())
    done = run_audit(data, out=tmp_path)
    (tmp_path / "findings.json").write_text("{")
    assert run_audit(data, out=tmp_path).table.column("verdict").equals(done.table.column("verdict"))


def test_another_audits_folder_is_refused(tmp_path: Path) -> None:
    data = as_features(few())
    run_audit(data, out=tmp_path, precision=0.7)
    with pytest.raises(RunError, match=r"holds another audit \(audit-data-.*data or settings differ\): choose another folder"):
        run_audit(data, out=tmp_path)
    assert load_audit(tmp_path).facts["expected precision"] == 0.7


def test_a_folder_that_cannot_be_created(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        RunError, match=r"file/out: cannot be written \(Not a directory\): give another folder with out \(--out\)"
    ):
        run_audit(as_features(few()), out=tmp_path / "file" / "out")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_write_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(RunError, match="cannot be written"):
        run_audit(as_features(few()), out=tmp_path / "out")


# --- odd data ------------------------------------------------------------------------------------------------------------


def test_class_names_that_are_numbers_keep_their_names(tmp_path: Path) -> None:
    data = few()
    x, y = as_features(data).inputs, data.labels.numpy() + 7
    done = run_audit((x.numpy(), y), out=tmp_path)  # type: ignore[union-attr]
    assert done.table.column("label").to_pylist() == y.tolist()
    assert set(done.table.column("predicted").to_pylist()) <= set(range(7, 17))
    assert done.facts["neighbors"] == "exact"


def test_a_class_of_one_example_is_not_judged(tmp_path: Path) -> None:
    data = few()
    y = np.where(np.arange(120) == 5, "alone", np.where(data.labels.numpy() < 5, "low", "high"))
    done = mohs.audit((as_features(data).inputs.numpy(), y), out=tmp_path)  # type: ignore[union-attr]
    assert done.table.column("verdict")[5].as_py() is None
    assert np.isnan(done.table.column("p_mislabeled")[5].as_py())
    assert sum(one is None for one in done.table.column("verdict").to_pylist()) == 1
    assert done.report is not None
    assert "1 not judged: the only example of its class" in done.report.read_text()


def test_random_labels_give_a_caution_and_no_flags(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    told: list[str] = []
    done = mohs.audit((random.random((90, 5)), random.integers(0, 6, 90)), out=tmp_path, tell=told.append)
    assert any(line.startswith("Caution: The judge predicts the labels no better than by chance") for line in told)
    assert set(done.table.column("verdict").to_pylist()) == {"cannot tell"}
    assert is_flagged(done.table).mean() <= 0.02
    assert (np.array(done.table.column("verdict").to_pylist()) == "cannot tell").mean() > 0.5
    assert done.report is not None
    assert "Check examples before you act on these verdicts" in done.report.read_text()


def test_many_classes_of_two_images(tmp_path: Path) -> None:
    images = torch.randint(0, 256, (60, 3, 8, 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    done = run_audit(Data(Examples(images, torch.arange(60) // 2, list(range(30)))), out=tmp_path, device="cpu")
    assert len(done.table) == 60
    assert is_flagged(done.table).mean() <= 0.02


def test_one_class_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="a single class"):
        run_audit((np.ones((4, 2)), np.zeros(4, int)), out=tmp_path)


# --- options -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("images", {"loss": "ember"}, "unknown loss 'ember'; known: cross_entropy"),
        ("images", {"loss": "gce:q=2"}, "q must be between 0 and 1"),
        ("images", {"model": "ember"}, "unknown model 'ember'"),
        ("images", {"epochs": 0}, "epochs must be at least 1, got 0"),
        ("images", {"batch": 0}, "batch must be at least 1, got 0"),
        ("features", {"folds": 2}, "folds must be at least 3, got 2"),
        ("features", {"precision": 1.0}, "precision must be over 0 and under 1, got 1.0"),
        ("features", {"precision": 0}, "precision must be over 0 and under 1, got 0"),
        ("features", {"model": "resnet20"}, "model (--model) is for images: features is judged by heads in folds; leave it out"),
        ("features", {"loss": "gce"}, "loss (--loss) is for images"),
        ("features", {"finetune": True}, "finetune (--finetune) is for images"),
        (
            "text",
            {"embed": "none"},
            'embed="none" (--embed none) is for images: texts need features; name an embedder, or leave it out',
        ),
        ("table", {"finetune": True}, "finetune (--finetune) is for images: table is judged by heads in folds"),
        ("table", {"embed": "lite0"}, "embed (--embed) is for images and texts: a table is judged by its columns; leave it out"),
        (
            "features",
            {"embed": "tfidf"},
            "embed (--embed) is for images and texts: features are judged as they are; leave it out",
        ),
        (
            "images",
            {"finetune": True, "embed": "none"},
            'finetune (--finetune) needs a pretrained backbone: leave embed="none" (--embed none) out',
        ),
    ],
)
def test_options_are_checked_before_any_work(
    kind: str,
    options: dict[str, Any],
    message: str,
    tmp_path: Path,
    few_texts: tuple[Path, np.ndarray],
    few_rows: tuple[Path, np.ndarray],
) -> None:
    def no_work(event: Any) -> None:
        raise AssertionError("it began")

    data: Any = {"images": few(), "features": as_features(few()), "text": few_texts[0], "table": few_rows[0]}[kind]
    with pytest.raises(ValueError, match=re.escape(message)):
        run_audit(data, out=tmp_path / "out", watch=no_work, **options)
    assert not (tmp_path / "out").exists()


def test_unknown_options_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="colour"):
        run_audit(as_features(few()), out=tmp_path, colour="red")
    assert AuditOptions().precision == 0.8
    assert AuditOptions(seed=1, tell=print) == AuditOptions(seed=1)


def test_sizes() -> None:
    assert [default_epochs(n, gpu=False) for n in (100, 30_000, 10**6)] == [30, 20, 10]
    assert [default_batch(n) for n in (2, 400, 1797, 10**6)] == [8, 28, 128, 128]


def test_scores_kept_by_an_earlier_version_are_made_again(tmp_path: Path) -> None:
    """An audit that was interrupted before an upgrade goes on: earlier versions kept no twins, the rows with equal features."""
    from mohs.audit.judge_features import head_scores, kept_scores
    from mohs.train.checkpoint import load_tree, save_tree

    data = mohs.open_data("digits").train.take(torch.arange(200))
    features, made = {"features": data.inputs.flatten(1).float().numpy()}, []

    def make() -> Any:
        made.append(1)
        return head_scores(features, data, AuditOptions(device="cpu"))

    file = tmp_path / "fold-scores.safetensors"
    first = kept_scores(file, data, make)
    assert kept_scores(file, data, make).refit.kind == first.refit.kind == "columns"  # type: ignore[union-attr]
    assert len(made) == 1
    old = load_tree(file)
    del old["refit"]["twins"]
    save_tree(old, file)
    again = kept_scores(file, data, make)
    assert len(made) == 2
    np.testing.assert_array_equal(again.scores, first.scores)


def test_each_class_needs_more_than_one_example_and_few_rows_are_enough(tmp_path: Path) -> None:
    inputs = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    with pytest.raises(DataError, match=r"the 4 labels are of 4 classes, .* one example, .* name their column"):
        run_audit((inputs, ["a", "b", "c", "d"]), out=tmp_path / "none")
    for rows in (3, 4):
        done = run_audit((inputs[:rows], ["a", "a", "b", "b"][:rows]), out=tmp_path / str(rows), device="cpu")
        assert len(done.table) == rows


def test_the_folder_of_the_data_is_no_output_folder(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "data" / name).mkdir(parents=True)
        for i in range(3):
            Image.fromarray(np.full((8, 8), 40 * i, np.uint8)).save(tmp_path / "data" / name / f"{i}.png")
    with pytest.raises(ValueError, match=r"out \(--out\) is the folder of the data, .*data: give another folder"):
        run_audit(tmp_path / "data", out=tmp_path / "data")
    assert sorted(file.name for file in (tmp_path / "data").iterdir()) == ["a", "b"]


# --- groups --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 trees, each measured eight times; the kind of six of them is wrong in all eight rows."""
    rng, own = np.random.default_rng(1), np.repeat(np.arange(60), 8)
    truth, wrong = np.arange(60) % 2, rng.permutation(60) < 6
    center = 0.7 * rng.normal(size=(60, 6)) + 2 * (2 * truth[:, None] - 1) * np.array([1, 0.5, 0, 0, 0, 0])
    x = center[own] + 0.05 * rng.normal(size=(480, 6))
    given = np.where(wrong, 1 - truth, truth)
    order = rng.permutation(480)
    columns = {f"m{i}": x[order, i] for i in range(6)} | {
        "tree": [f"tree {one}" for one in own[order]],
        "wrong": wrong[own][order],
    }
    rows = pd.DataFrame({**columns, "kind": np.array(["elm", "oak"])[given[own][order]]})
    folder = tmp_path_factory.mktemp("measured")
    rows.drop(columns=["tree", "wrong"]).to_csv(folder / "alone.csv", index=False)
    rows.drop(columns="wrong").to_csv(folder / "trees.csv", index=False)
    rows.assign(place=rng.choice(list("xyz"), 480)).drop(columns="wrong").to_csv(folder / "mixed.csv", index=False)
    np.save(folder / "wrong.npy", rows["wrong"].to_numpy())
    return folder


@pytest.mark.parametrize("name", ["trees", "mixed"])
def test_a_label_that_is_wrong_in_all_rows_of_a_group_is_found_by_other_groups(measured: Path, tmp_path: Path, name: str) -> None:
    wrong = np.load(measured / "wrong.npy")
    done = {}
    for group in (None, "tree"):
        lines: list[str] = []
        file = measured / f"{name}.csv"
        done[group] = mohs.audit(file, label="kind", group=group, out=tmp_path / f"{group}", issues="none", tell=lines.append)
        hinted = any(line.startswith("Note: column 'tree' has 60 values with 8 rows each") for line in lines)
        assert hinted == (group is None)
    assert not is_flagged(done[None].table).any()  # the other rows of the tree vouch for the label
    flagged = is_flagged(done["tree"].table)
    assert flagged[wrong].mean() > 0.9
    assert flagged[~wrong].mean() < 0.02
    assert "groups" not in done[None].facts
    assert done["tree"].facts["groups"] == 60
    assert done["tree"].facts["notes"].endswith("60 groups of 480 examples stay whole in cross-validation and splits")
    assert "tree" not in (done["tree"].facts.get("features"), *done["tree"].table.column_names)


def test_scores_of_other_groups_are_not_used_again(measured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    how: dict[str, Any] = {"label": "kind", "issues": "none", "folds": 3}
    rows = measured / "trees.csv"
    assert {mohs.audit(rows, **how, runs=tmp_path).folder, mohs.audit(rows, **how, group="tree", runs=tmp_path).folder} == set(
        tmp_path.glob("audit-trees-*")
    )
    with monkeypatch.context() as patch:
        patch.setattr(import_module("mohs.audit.judge_features"), "judge_examples", stop)
        with pytest.raises(KeyboardInterrupt):  # after the folds were scored
            mohs.audit(rows, **how, group="tree", out=tmp_path / "out")
    assert (tmp_path / "out" / "fold-scores.safetensors").exists()
    with pytest.raises(RunError, match="holds another audit"):
        mohs.audit(rows, **how, out=tmp_path / "out")
    resumed = mohs.audit(rows, **how, group="tree", out=tmp_path / "out")
    assert resumed.table.equals(mohs.audit(rows, **how, group="tree", runs=tmp_path).table)


def stop(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def test_decisions_and_the_earlier_audit_hold_with_groups(measured: Path, tmp_path: Path) -> None:
    first = mohs.audit(measured / "trees.csv", label="kind", out=tmp_path / "a", issues="none")
    wrong = np.load(measured / "wrong.npy")
    rows, labels = np.flatnonzero(wrong)[:3].tolist(), first.table.column("label").to_pylist()
    named = {"data_hash": first.data_hash, "decision": "change"}
    decisions = [{"id": str(i), "label": labels[i], "new_label": "oak" if labels[i] == "elm" else "elm", **named} for i in rows]
    again = mohs.audit(previous=tmp_path / "a", open_as={"group": "tree"}, checked=decisions, out=tmp_path / "b")
    assert again.facts["groups"] == 60
    assert again.diff is not None
    assert again.diff.counts["new"] > 30
    assert all(again.table.column("checked").to_pylist()[i] == "wrong" for i in rows)
    third = mohs.audit(previous=tmp_path / "b", out=tmp_path / "c")  # its options, groups among them
    assert third.facts["groups"] == 60
    labels_, _ = mohs.apply_decisions(again.table, decisions, again.data_hash)
    write_table(labels_, tmp_path / "labels.csv")
    corrected = mohs.audit(
        measured / "trees.csv", label="kind", group="tree", corrected=tmp_path / "labels.csv", out=tmp_path / "d"
    )
    assert corrected.facts["groups"] == 60


def test_groups_as_an_array_cannot_be_repeated_without_them(measured: Path, tmp_path: Path) -> None:
    trees = pd.read_csv(measured / "trees.csv")["tree"]
    done = mohs.audit(measured / "alone.csv", label="kind", group=trees, out=tmp_path / "a", issues="none")
    assert done.facts["groups"] == 60
    with pytest.raises(DataError, match="in memory: give the data too"):
        mohs.audit(previous=tmp_path / "a", out=tmp_path / "b")


def test_groups_that_cannot_be_judged_are_refused(tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % 2
    with pytest.raises(DataError, match="2 groups cannot be judged in 3 folds: at least 3 groups are needed"):
        mohs.audit((x, y), group=np.arange(60) // 30, out=tmp_path / "a")
    with pytest.raises(DataError, match="12 groups cannot be judged in 20 folds: at least 20 groups are needed"):
        mohs.audit((x, y), group=np.arange(60) // 5, folds=20, out=tmp_path / "a")
    three = np.arange(60) // 20
    with pytest.raises(DataError, match=r"each class is in one group, .*: group \(--group\) must not name the classes"):
        mohs.audit((x, three), group=[f"class {one}" for one in three], out=tmp_path / "a")
    with pytest.raises(ValueError, match=r"group \(--group\) is for labels that are judged in folds, .*: leave it out"):
        mohs.audit({"probs": np.full((60, 2), 0.5), "y": y, "who": three}, group="who", out=tmp_path / "a")
    images = np.random.default_rng(0).integers(0, 255, (60, 8, 8), dtype=np.uint8)
    with pytest.raises(ValueError, match="not by a network or predictions; images are, with --embed and an embedder"):
        mohs.audit((images, y), group=three, embed="none", out=tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_a_class_in_one_group_is_not_judged(tmp_path: Path) -> None:
    rng, own = np.random.default_rng(0), np.repeat(np.arange(30), 6)
    labels = np.where(own == 4, 2, own % 2)
    x = rng.normal(size=(180, 4)) + 3 * np.eye(4)[labels]
    done = mohs.audit((x, labels), group=own, out=tmp_path / "a", issues="none")
    verdicts = np.array(done.table.column("verdict").to_pylist())
    assert set(verdicts[labels == 2]) == {None}
    assert None not in verdicts[labels != 2]
    assert "all examples of their class are in one group or fold" in (done.folder / "report.html").read_text()


def test_groups_of_few_rows_each(tmp_path: Path) -> None:
    """As many folds as there are groups, where these are few; a missing name is a group by itself."""
    rng = np.random.default_rng(0)
    labels = np.arange(80) % 2
    x = rng.normal(size=(80, 4)) + 3 * np.eye(4)[labels]
    done = mohs.audit((x, labels), group=np.arange(80) % 4, out=tmp_path / "a", issues="none")
    assert "in 4 folds" in done.facts["model"]
    names = [None if i < 4 else i // 20 for i in range(80)]
    assert mohs.audit((x, labels), group=names, out=tmp_path / "b", issues="none").facts["groups"] == 8
