"""Imports go one way: a package imports only packages below it, lazy imports included, and there are no cycles."""

from __future__ import annotations

import ast
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import mohs

SOURCE = Path(mohs.__file__).parent
LAYERS = (  # the lowest first; packages of one layer do not import each other
    {"_core"},
    {"margin"},
    {"angle", "emphasis"},
    {"losses"},
    {"heads"},
    {"hardness"},
    {"data"},
    {"models"},
    {"evaluate"},
    {"embed"},
    {"train"},
    {"issues"},
    {"audit", "adapt"},
    {"studies", "integrations"},
    {"report"},
    {"review"},
    {"workflow"},
    {"cli"},
    {"__main__"},
)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def modules() -> dict[str, Path]:
    """Dotted name below `mohs` of every module: its file."""
    found = {}
    for file in SOURCE.rglob("*.py"):
        parts = file.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    found.pop("")  # mohs/__init__.py names everything, lazily
    return found


MODULES = modules()


def imports_of(name: str) -> set[str]:
    """The modules of mohs that a module imports anywhere in its text, at the top or inside a function."""
    found = set()
    for node in ast.walk(ast.parse(MODULES[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "mohs":
            for alias in node.names:
                inner = f"{node.module}.{alias.name}".removeprefix("mohs.")
                found.add(inner if inner in MODULES else node.module.removeprefix("mohs").removeprefix("."))
        elif isinstance(node, ast.Import):
            found |= {alias.name.removeprefix("mohs.") for alias in node.names if alias.name.startswith("mohs.")}
    return found - {"", name}  # "": the package itself, for its version


@cache
def graph() -> dict[str, set[str]]:
    """What every module imports; asked for by tests, since parsing all of mohs takes seconds that collection need not spend."""
    return {name: imports_of(name) for name in MODULES}


def room(name: str) -> str:
    return name.split(".")[0]


def test_every_package_has_a_layer():
    assert {room(name) for name in MODULES} == set(LEVEL)


@pytest.mark.parametrize("name", sorted(MODULES))
def test_imports_point_down(name):
    up = sorted(other for other in graph()[name] if room(other) != room(name) and LEVEL[room(other)] >= LEVEL[room(name)])
    assert not up, f"mohs.{name} imports {', '.join(up)}, which stand above it or beside it"


def test_no_import_cycles():
    inner = {name: {o for o in others if not name.startswith(f"{o}.")} for name, others in graph().items()}
    try:
        TopologicalSorter(inner).prepare()
    except CycleError as error:
        pytest.fail(f"circle of imports: {' -> '.join(error.args[1])}")


ENTRY_POINTS = {  # modules that users import or start themselves
    "__main__": "python -m mohs",
    "integrations.lightning": "needs an extra, so `mohs` does not export it",
    "integrations.skorch": "needs an extra, so `mohs` does not export it",
    "integrations.transformers": "needs an extra, so `mohs` does not export it",
}


def unreachable(graph: dict[str, set[str]], roots: set[str]) -> list[str]:
    """The modules that cannot be reached by imports from the roots: only tests, or nobody, import them."""
    reached: set[str] = set()
    waiting = set(roots)
    while waiting:
        name = waiting.pop()
        reached.add(name)
        parents = {name.rpartition(".")[0]} & set(graph)  # importing a module runs the __init__ of its package
        waiting |= (graph.get(name, set()) | parents) - reached
    return sorted(set(graph) - reached)


def test_every_module_is_used():
    """From the command line, the public names and the entry points, imports lead to every module: no module is for tests only."""
    roots = {"cli", *mohs.HOME.values(), *ENTRY_POINTS}
    assert not unreachable(graph(), roots)


def test_a_module_for_tests_only_is_found():
    graph = {
        "cli": {"train.loop"},
        "train": set(),
        "train.loop": set(),
        "train.left_over": {"train.loop"},
        "train.old": {"train.left_over"},
    }
    assert unreachable(graph, {"cli"}) == ["train.left_over", "train.old"]


@pytest.mark.parametrize("name", sorted(ENTRY_POINTS))
def test_entry_points_exist(name):
    assert name in MODULES
