"""The package as a whole: what it imports and what it names."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import mohs

SOURCE = Path(mohs.__file__).parent
ROOT = SOURCE.parents[1]
FILES = sorted(SOURCE.rglob("*.py"))
HEAVY = ("torch", "torchvision", "sklearn", "scipy", "pyarrow", "altair", "torchmetrics", "accelerate", "captum", "numpy")


def modules_after(code: str) -> set[str]:
    ask = f"import sys\ntry:\n    {code}\nexcept SystemExit:\n    pass\nprint('\\n'.join(sys.modules), file=sys.stderr)"
    answer = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    return set(answer.stderr.split())


@pytest.mark.parametrize("code", ["import mohs", "import sys; sys.argv = ['mohs', '--help']; from mohs.cli import main; main()"])
def test_import_and_help_do_not_import_torch(code: str) -> None:
    assert not modules_after(code) & set(HEAVY)


def test_public_names_are_loaded_typed_and_listed_alike() -> None:
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    typed = {
        alias.name: node.module
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert typed == {name: f"mohs.{home}" for name, home in mohs.HOME.items()}
    assert sorted(mohs.__all__) == sorted(mohs.HOME)
    for name in mohs.__all__:
        assert getattr(mohs, name) is not None
        assert name in dir(mohs)
    with pytest.raises(AttributeError, match="module 'mohs' has no attribute 'ember'"):
        _ = mohs.ember


FUNCTIONS = ("adapt", "angle", "audit", "embed", "emphasis", "margin", "score", "train")  # some are packages or modules too
FIRST = (
    "pass",
    "import mohs.margin, mohs.train.loop, mohs.audit.result, mohs.adapt.selection, mohs.embed",
    "from mohs.losses import gce; from mohs.margin import margin; from mohs.audit.pipeline import run_audit",
    "import mohs; mohs.audit; import mohs.audit.pipeline, mohs.train.folds",
)


@pytest.mark.parametrize("first", FIRST)
def test_names_that_are_modules_too_stay_functions(first: str, run_forked: Callable[..., int]) -> None:
    code = f"""import sys
for name in [name for name in sys.modules if name.partition(".")[0] == "mohs"]:
    del sys.modules[name]
{first}
import mohs
import mohs.audit as audit, mohs.train as train, mohs.adapt as adapt, mohs.margin as margin
from types import FunctionType
assert all(isinstance(f, FunctionType) for f in (audit, train, adapt, margin)), (audit, train, adapt, margin)
assert all(isinstance(getattr(mohs, name), FunctionType) for name in {FUNCTIONS!r})
assert margin is mohs.margin and audit is mohs.audit
"""
    assert run_forked(code) == 0


@pytest.mark.parametrize("name", sorted(mohs.__all__))
def test_every_public_name_resolves_and_has_a_docstring(name: str) -> None:
    value = getattr(mohs, name)
    assert value is not None
    if not name.isupper() or callable(value):  # tables such as LOSSES are plain dicts
        text = inspect.getdoc(value)
        assert text
        assert not text.startswith(f"{name}("), "dataclass's own text is no docstring"


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(SOURCE)))
def test_every_file_begins_with_a_docstring(file: Path) -> None:
    assert ast.get_docstring(ast.parse(file.read_text()))


def test_readme_links_resolve() -> None:
    links = re.findall(r"(?:\]\(|src=\"|srcset=\")([^)\"#]+)", (ROOT / "README.md").read_text())
    assert links
    for link in links:
        assert link.startswith(("http://", "https://")) or (ROOT / link).exists(), link


def test_readme_python_examples_run(run_forked: Callable[..., int]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert blocks
    for block in blocks:
        assert run_forked(f"import os, warnings\nos.chdir(root)\nwarnings.simplefilter('error')\n{block}", root=ROOT) == 0, block


def test_torch_and_torchvision_import_together() -> None:
    pytest.importorskip("torchvision", reason="torchvision is not installed (the vision extra)")
    assert importlib.import_module("torchvision.ops").nms
