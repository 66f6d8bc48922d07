"""The promises of SECURITY.md about all of the code: nothing is unpickled, nothing fetched unasked, no text run as code."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import mohs

SOURCE = Path(mohs.__file__).parent
ROOT = SOURCE.parents[1]
PICKLERS = {"cloudpickle", "dill", "joblib", "marshal", "pickle", "shelve"}
FETCHERS = {"ftplib", "http.client", "httpx", "requests", "urllib.request", "urllib3"}
READER_OF_PICKLES = "data/readers/batch_pickle.py"  # of CIFAR; it knows four names and refuses all others


@cache
def statements() -> list[tuple[str, ast.Import | ast.ImportFrom | ast.Call]]:
    """Every import and call of every file, with the file's path."""
    return [
        (file.relative_to(SOURCE).as_posix(), node)
        for file in sorted(SOURCE.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom | ast.Call)
    ]


def dotted(node: ast.AST) -> str:
    """The name that an expression spells: a.b.c."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def imported(node: ast.AST) -> set[str]:
    """The modules that a statement imports, and their packages."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        names = [f"{node.module}.{alias.name}" for alias in node.names]
    elif isinstance(node, ast.Call) and dotted(node.func).endswith("import_module"):
        names = [str(argument.value) for argument in node.args if isinstance(argument, ast.Constant)]
    else:
        return set()
    return {".".join(name.split(".")[:depth]) for name in names for depth in (1, 2)}


def unsafe(node: ast.AST) -> str | None:
    """What is wrong with a call, if anything."""
    if not isinstance(node, ast.Call):
        return None
    name, given = dotted(node.func), {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
    if name in {"np.load", "numpy.load"} and given.get("allow_pickle") != "False":
        return "np.load without allow_pickle=False"
    if name == "torch.load" and given.get("weights_only") != "True":
        return "torch.load without weights_only=True"
    if name in {"eval", "exec", "os.system", "os.popen", "torch.hub.load", "yaml.load"}:
        return name
    if given.get("shell", "False") != "False" or given.get("trust_remote_code", "False") != "False":
        return "shell or trust_remote_code"
    return None


def test_nothing_is_unpickled_and_no_text_is_run() -> None:
    assert not {(file, name) for file, node in statements() for name in imported(node) & PICKLERS if file != READER_OF_PICKLES}
    assert not {(file, problem) for file, node in statements() if (problem := unsafe(node))}


def test_no_module_fetches() -> None:
    """Downloads go through huggingface_hub and timm alone, by a name that the user gave."""
    assert not {(file, name) for file, node in statements() for name in imported(node) & FETCHERS}


UNSAFE = ["np.load(f)", "torch.load(f, weights_only=False)", "eval(text)", "run(c, shell=True)", "load(n, trust_remote_code=x)"]
FORBIDDEN = ["import pickle", "from urllib.request import urlopen", "from urllib import request", "import_module('http.client')"]


@pytest.mark.parametrize("code", UNSAFE)
def test_unsafe_calls_are_noticed(code: str) -> None:
    assert unsafe(ast.parse(code, mode="eval").body)


@pytest.mark.parametrize("code", FORBIDDEN)
def test_forbidden_imports_are_noticed(code: str) -> None:
    assert any(imported(node) & (PICKLERS | FETCHERS) for node in ast.walk(ast.parse(code)))


@pytest.mark.usefixtures("no_network")
def test_audit_asks_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOHS_CACHE", str(tmp_path / "cache"))
    rows = [f"{'good fine great' if i % 2 else 'bad poor awful'} film number {i},{'pos' if i % 2 else 'neg'}" for i in range(40)]
    (tmp_path / "reviews.csv").write_text("\n".join(["text,label", *rows]))
    result = mohs.audit(tmp_path / "reviews.csv", out=tmp_path / "audit", device="cpu")
    assert len(result.table) == 40
    assert Path(result.report).is_file()


def test_every_test_that_the_promises_name_is_there() -> None:
    names = re.findall(r"`(tests/[\w/.]+)`", (ROOT / "SECURITY.md").read_text())
    assert len(names) > 10
    assert not [name for name in names if not (ROOT / name).exists()]
