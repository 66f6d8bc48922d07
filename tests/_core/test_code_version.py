"""Which code made a result: the commit of unmodified files, otherwise a hash that a checkout of the same files repeats."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from mohs._core.code_version import PACKAGE, code_version, tree_hash


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    return subprocess.run(["git", "-C", str(folder), *who, *arguments], capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    made = tmp_path / "repo" / "src" / "toy"
    made.mkdir(parents=True)
    (made / "__init__.py").write_text("x = 1\n")
    (made / "settings.toml").write_text("y = 1\n")
    git(tmp_path / "repo", "init", "-q")
    git(tmp_path / "repo", "add", "-A")
    git(tmp_path / "repo", "commit", "-qm", "one")
    return made


def test_a_clean_package_is_its_commit(package: Path) -> None:
    commit = git(package, "rev-parse", "HEAD")
    assert code_version(package) == commit[:12]
    (package.parents[1] / "results.csv").write_text("1\n")  # outside the package
    assert code_version(package) == commit[:12]


def test_a_modified_package_is_the_hash_of_its_files(package: Path, tmp_path: Path) -> None:
    clean = tree_hash(package)
    (package / "__init__.py").write_text("x = 2\n")
    modified = code_version(package)
    assert modified == f"tree:{tree_hash(package)}" != f"tree:{clean}"
    shutil.copytree(package, tmp_path / "elsewhere")  # no history
    assert code_version(tmp_path / "elsewhere") == modified
    git(package, "checkout", "-q", "--", ".")
    (package / "new.py").write_text("")  # imported as any other file, though git does not know it
    assert code_version(package).startswith("tree:")
    (package / "new.py").unlink()
    (package / "__pycache__").mkdir()
    assert tree_hash(package) == clean


def test_an_ignored_package_is_not_the_commit_around_it(package: Path) -> None:
    inner = package.parents[1] / "venv" / "toy"
    shutil.copytree(package, inner)
    assert code_version(inner) == f"tree:{tree_hash(package)}"


def test_the_package_itself_has_a_version() -> None:
    assert len(tree_hash(PACKAGE)) == 12
    assert code_version().removeprefix("tree:").isalnum()
