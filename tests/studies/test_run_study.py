"""Studies end to end: they run, resume, go on past what diverges, and are collected by reading alone."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mohs._core.errors import DataError
from mohs.studies.collect import by_seed, collect, columns_of, read_results, select_epoch, write_results
from mohs.studies.plan import distinct, plan
from mohs.studies.recipe import read_recipe, select_rows
from mohs.studies.run_study import run_study, train_pooled, waves
from mohs.studies.study_page import study_page, verdicts

Write = Callable[..., Path]
WILD = '\n[[row]]\nlabel = "wild"\noptimizer = "sgd:lr=1e30"\nagainst = "CE"\n[[measure]]\nname = "ece"\n'


class StoppedError(Exception):
    """The study is stopped from outside."""


def test_a_study_continues_after_a_row_diverges_and_reports_it(written: Write, tmp_path: Path) -> None:
    recipe, told = read_recipe(written(more=WILD)), []
    results = run_study(recipe, runs=tmp_path / "runs", device="cpu", watch=told.append)
    assert [(one["row"], one["seed"]) for one in results] == [(row, seed) for row in ("CE", "GCE", "wild") for seed in (0, 1)]
    for one in results[:4]:
        assert 0 <= one["test_accuracy"] <= 1
        assert {"ece", "run", "hardware", "date", "versions", "epochs"} <= set(one)
    assert all("the loss became" in one["error"] and "test_accuracy" not in one for one in results[4:])
    ends = [event for event in told if "ended" in event]
    assert [(event["ended"], event["of"]) for event in ends] == [(n, 6) for n in range(1, 7)]
    assert [bool(event["error"]) for event in ends] == [event["row"] == "wild" for event in ends]
    page = study_page(recipe, results)
    assert "## Collapsed runs" in page
    assert "| wild | not run |" in page
    assert "- 2 of 2 runs of wild collapsed (seed 0: the loss became" in page
    assert "wild" not in verdicts(recipe, results)


def test_what_is_done_is_only_read_and_collecting_gives_the_same(written: Write, tmp_path: Path) -> None:
    path, runs = written(), tmp_path / "runs"
    first = run_study(read_recipe(path), runs=runs, device="cpu")
    steps: list[dict[str, Any]] = []
    again = run_study(
        read_recipe(path), runs=runs, device="cpu", watch=lambda event: steps.append(event) if "step" in event else None
    )
    assert steps == []
    assert first == again == collect(read_recipe(path), runs=runs)
    assert collect(read_recipe(path), runs=tmp_path / "none") == []
    more = read_recipe(written(more='\n[[measure]]\nname = "margins"\n'))
    assert "mean_gap" not in collect(more, runs=runs)[0]
    assert (
        "mean_gap"
        in run_study(more, runs=runs, device="cpu", watch=lambda event: steps.append(event) if "step" in event else None)[0]
    )
    assert steps == []
    for folder in runs.glob("digits-*"):
        (folder / "DONE").unlink()
    with pytest.raises(DataError, match="is not finished, or was removed: run the study again"):
        collect(read_recipe(path), runs=runs)


def test_an_interrupted_study_resumes_to_the_same_result(written: Write, tmp_path: Path) -> None:
    path = written()
    whole = run_study(read_recipe(path), runs=tmp_path / "whole", device="cpu")
    left = 9

    def watch(event: dict[str, Any]) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise StoppedError

    with pytest.raises(StoppedError):
        run_study(read_recipe(path), runs=tmp_path / "stopped", device="cpu", watch=watch)
    assert len(collect(read_recipe(path), runs=tmp_path / "stopped")) < 4
    done = run_study(read_recipe(path), runs=tmp_path / "stopped", device="cpu")
    assert done == whole


def test_equal_rows_are_one_run(written: Write, tmp_path: Path) -> None:
    path = written(("seeds = 2", "seeds = 1"), more='\n[[row]]\nlabel = "CE again"\n')
    results = run_study(read_recipe(path), runs=tmp_path / "runs", device="cpu")
    assert len(results) == 3
    assert results[0]["run"] == results[2]["run"] != results[1]["run"]
    assert len(list((tmp_path / "runs").glob("digits-*"))) == 2


def test_what_cannot_work_is_said_early(written: Write, tmp_path: Path) -> None:
    chosen_by_val = written(("seeds = 2", 'seeds = 1\nselect = "best_val"'))
    with pytest.raises(ValueError, match="select = \"best_val\", but row 'CE' has no validation set"):
        run_study(read_recipe(chosen_by_val), runs=tmp_path / "runs", device="cpu")
    assert not (tmp_path / "runs").exists()
    nameless = written(("seeds = 2", 'seeds = 1\nmetric = "ece"'))
    with pytest.raises(ValueError, match=r"no run provides the metric 'ece'; available: test_accuracy, accuracy"):
        run_study(read_recipe(nameless), runs=tmp_path / "runs", device="cpu")
    with pytest.raises(ValueError, match="jobs must be at least 1"):
        run_study(read_recipe(nameless), runs=tmp_path / "runs", jobs=0)


def test_which_epoch_counts() -> None:
    history = [
        {"epoch": 0, "val_accuracy": 0.5, "test_accuracy": 0.6},
        {"epoch": 1, "val_accuracy": 0.7, "test_accuracy": 0.4},
        {"epoch": 2, "val_accuracy": 0.7, "test_accuracy": 0.5},
    ]
    assert [select_epoch(history, select)["epoch"] for select in ("last", "best", "best_val")] == [2, 0, 1]
    with pytest.raises(DataError, match='select = "best_val" needs val_accuracy'):
        select_epoch([{"epoch": 0, "test_accuracy": 1.0}], "best_val")


def test_results_survive_a_csv_file(tmp_path: Path) -> None:
    head = {"study": "toy/table1", "scale": "full", "select": "last"}
    results = [
        {**head, "row": 'a, "b" | c', "seed": 0, "epochs": 2, "test_accuracy": 0.123456, "run": "012e4567", "git": "1e10"},
        {**head, "row": "d", "seed": 1, "error": "the loss became nan"},
    ]
    write_results(results, tmp_path / "new" / "x.csv")
    assert read_results(tmp_path / "new" / "x.csv") == results
    assert columns_of(results)[:8] == ["study", "row", "seed", "scale", "select", "epochs", "classes", "test_accuracy"]
    assert by_seed(results, 'a, "b" | c', "test_accuracy") == {0: 0.123456}
    (tmp_path / "y.csv").write_text("row,value\na,1\n")
    with pytest.raises(DataError, match="no column 'seed'"):
        read_results(tmp_path / "y.csv")
    for line, word in (("a,1,0.5,7", "more"), ("a,1", "fewer")):
        (tmp_path / "w.csv").write_text(f"row,seed,value\nb,0,1\n{line}\n")
        with pytest.raises(DataError, match=f"w.csv: line 3 has {word} cells"):
            read_results(tmp_path / "w.csv")
    (tmp_path / "z.csv").write_text("row,seed,value\na,1,many\n")
    with pytest.raises(DataError, match="value is 'many', which is not a number"):
        read_results(tmp_path / "z.csv")


def test_the_notes_of_a_study_are_plain_json(written: Write, tmp_path: Path) -> None:
    run_study(read_recipe(written(("seeds = 2", "seeds = 1"))), runs=tmp_path / "runs", device="cpu")
    noted = json.loads((tmp_path / "runs" / "studies" / "toy-table1.json").read_text())
    assert {tuple(entry) for entry in noted.values()} == {("folder",)}


def test_two_studies_share_their_runs(written: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = read_recipe(written(), seeds=1)
    trained = train_pooled([recipe, select_rows(recipe, ["CE"])], runs=tmp_path / "runs", device="cpu")
    assert trained == len(distinct(plan(recipe)))
    monkeypatch.setattr(sys.modules["mohs.train.loop"], "steps", lambda *given, **options: pytest.fail("trained twice"))
    assert len(run_study(recipe, runs=tmp_path / "runs", device="cpu")) == len(recipe.rows)


def test_groups_are_of_one_kind_and_balanced(written: Write) -> None:
    planned = plan(read_recipe(written(), seeds=5))  # two rows
    assert [len(wave) for wave in waves(planned, 8)] == [5, 5]
    assert [len(wave) for wave in waves(planned, 4)] == [4, 4, 2]
    assert [len(wave) for wave in waves(planned, 1)] == [1] * 10


def test_an_exact_label_takes_precedence(written: Write) -> None:
    recipe = read_recipe(written())
    assert [row.label for row in select_rows(recipe, ["CE"]).rows] == ["CE"]
    assert [row.label for row in select_rows(recipe, ["C"]).rows] == ["CE", "GCE"]
