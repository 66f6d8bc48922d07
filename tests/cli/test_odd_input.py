"""Options and files of a wrong kind: one line that says what is wrong and what to do, never a traceback."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from mohs.cli import main
from mohs.train.checkpoint import save_tree

RECIPE = """
[study]
id = "x/y"
paper = "p"
what = "w"
[base]
model = "mlp:hidden=4"
epochs = 1
[[row]]
label = "a"
"""


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    """Exit code and stderr of a command."""
    monkeypatch.setattr(sys, "argv", ["mohs", *map(str, words)])
    try:
        main()
        code = 0
    except SystemExit as stop:
        code = int(stop.code or 0)
    return code, capsys.readouterr().err


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    path = tmp_path_factory.mktemp("data") / "data.npz"
    np.savez(path, x=rng.normal(size=(60, 4)).astype(np.float32) + y[:, None], y=y)
    return path


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "--regularizer", "center:weight=1,seed=x"], "center: seed must be an integer, got 'x'"),
        (["train", "--loss", "logit_adjusted:counts={}"], "logit_adjusted: counts must be a list of numbers"),
        (["train", "--loss", "gce:ignore_index=99999999999999999999"], "gce: ignore_index must be an integer from"),
        (["train", "--model", "torchvision:net=[1]"], "torchvision has no classifier 'net=[1]'"),
        (["train", "--seed", "99999999999999999999"], "seed must be an integer from 0 to 4294967295"),
        (["train", "--seed", "-1"], "seed must be an integer from 0 to 4294967295, got -1"),
        (["train", "--class-weight", "deferred:x=1"], "deferred has no field 'x'"),
        (["train", "--head", "cosface:in_features=3"], "in_features"),
        (["train", "--optimizer", "sgd:lr=nan"], "sgd: lr must be a finite number"),
        (["emphasis", "gradient_rescaling:beta=1e30"], "overflows: give it smaller settings"),
        (["compare", "--loss", "gce", "--loss", "mae", "--seeds", "99999999999999999999"], "seeds must be"),
        (["audit", "--folds", "99999999999999999999"], "folds must be an integer from"),
    ],
)
def test_a_wrong_option_is_a_usage_error(
    words: list[str],
    message: str,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    extra = [data] if words[0] in ("train", "compare", "audit") else []
    code, text = run(monkeypatch, capsys, words[0], *extra, *words[1:])
    assert (code, message in text) == (2, True), text
    assert not list(tmp_path.rglob("*.safetensors"))


def test_a_large_eps_is_a_number_like_any_other(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, capsys, "emphasis", "gradient_rescaling:eps=99999999999999999999")[0] == 0


@pytest.mark.parametrize(
    "line",
    [
        "data = {limit=2}",
        "seed = []",
        "seed = 2020-01-01",
        "open = {holdout_classes = 5}",
        "open = {root = 1}",
        "open = {nothing = 1}",
        "trace = [1]",
        "epochs = nan",
        "loss = 5",
        "model = {x = 1}",
        'model = {name = "torchvision", net = [1]}',
        "augment = 'x'",
        "batch = true",
        "ema = inf",
    ],
)
def test_a_wrong_value_in_a_recipe_is_named_with_the_file(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    key = line.partition(" ")[0]
    recipe = tmp_path / "recipe.toml"
    kept = [old for old in RECIPE.splitlines() if not old.startswith(f"{key} ")]
    recipe.write_text("\n".join(kept).replace("[base]", f"[base]\n{line}"))
    code, text = run(monkeypatch, capsys, "study", recipe, "--runs", tmp_path, "--dry-run")
    assert code == 2, text
    assert str(recipe) in text
    assert text.startswith("mohs: ")
    assert text.count("\n") == 1


@pytest.mark.parametrize(
    "table", ["study = 5", "row = 5", "sweep = [1]", "measure = {x = 1}", "base = [1]", "smoke = 2020-01-01"]
)
def test_a_table_of_a_wrong_kind_is_named(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(table)
    code, text = run(monkeypatch, capsys, "study", recipe)
    assert (code, f"recipe.toml: {table.partition(' ')[0]} must be" in text) == (2, True), text


@pytest.fixture
def trained(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[object]:
    """The command of a finished run in FOLDER/run."""
    words = ["train", data, "--model", "mlp:hidden=4", "--epochs", "2", "--device", "cpu", "--quiet", "--out", tmp_path / "run"]
    assert run(monkeypatch, capsys, *words)[0] == 0
    return words


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("run.json", b"null"),
        ("run.json", b'{"hash": '),
        ("run.json", b'"\xc0'),
        ("model.safetensors", b""),
        ("model.safetensors", b"x" * 5000),
        ("metrics.jsonl", b'{"epoch": 0'),
        ("dynamics.parquet", b"PAR1"),
        ("checksums.json", b"null"),
        ("model.safetensors", None),
    ],
)
@pytest.mark.parametrize("command", ["train", "compare"])
def test_a_damaged_run_is_an_error_with_a_remedy(
    name: str,
    content: bytes | None,
    command: str,
    trained: list[object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "run" / name
    if content is None:
        file.unlink()
        file.mkdir()
    else:
        file.write_bytes(content)
    words = trained if command == "train" else ["compare", tmp_path / "run", tmp_path / "run"]
    code, text = run(monkeypatch, capsys, *words)
    if name == "dynamics.parquet" and command == "compare":
        assert code == 0  # it needs the network only
        return
    assert code == 3, text
    assert f"{file} is damaged" in text
    assert "remove" in text
    assert text.count("\n") == 1


def test_a_folder_of_another_kind_is_named_with_the_commands_that_take_it(
    data: Path, trained: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    audit, was_trained, none = tmp_path / "audit", tmp_path / "run", tmp_path / "none"
    assert run(monkeypatch, capsys, "audit", data, "--out", audit, "--issues", "none", "--quiet")[0] == 0
    holds_audit = "it holds an audit (mohs review, mohs report and mohs apply take it)"
    holds_run = "it holds a training run (mohs predict and mohs compare take it, and mohs audit DATA --run judges by it)"
    for words, message in (
        (["audit", audit], f"{audit} is not data: {holds_audit}; give the data"),
        (["train", audit], f"{audit} is not data: {holds_audit}; give the data"),
        (["score", audit], f"{audit} is not data: {holds_audit}; give the data"),
        (["audit", was_trained], f"{was_trained} is not data: {holds_run}; give the data"),
        (["predict", was_trained, was_trained], f"{was_trained} is not data: {holds_run}; give new inputs"),
        (["predict", audit, data], f"{audit} does not hold a run: {holds_audit}; give the folder of a run of mohs train"),
        (["report", was_trained], f"{was_trained} is not the folder of an audit: {holds_run}; give"),
        (["review", was_trained], f"{was_trained} is not the folder of an audit: {holds_run}; give"),
        (["audit", data, "--previous", was_trained], f"{was_trained} is not the folder of an audit: {holds_run}; give"),
        (["report", none], f"{none} does not exist: give the folder of a finished audit"),
    ):
        code, text = run(monkeypatch, capsys, *words)
        assert (code, message in text) == (3, True), text
        assert "Traceback" not in text


def test_a_checkpoint_that_is_a_directory_or_of_another_kind(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", data, "--model", "mlp:hidden=4", "--epochs", "1", "--device", "cpu", "--out", tmp_path / "run"]
    file = tmp_path / "run" / "checkpoint.safetensors"
    file.mkdir(parents=True)
    code, text = run(monkeypatch, capsys, *words)
    assert (code, f"{file} is damaged (it is not a file)" in text) == (3, True), text
    file.rmdir()
    save_tree({"epoch": 1, "processes": 1}, file)
    code, text = run(monkeypatch, capsys, *words)
    assert (code, f"{file} is damaged (it lacks" in text) == (3, True), text
