"""requirements.lock agrees with pyproject.toml, and pip can check every file that it installs."""

from __future__ import annotations

import re
import tomllib
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PYTHONS = ("3.11.0", "3.11.5", "3.12.0", "3.13.0", "3.14.0")
LINUX = {"sys_platform": "linux", "platform_machine": "x86_64", "platform_system": "Linux", "implementation_name": "cpython"}


def entries() -> list[tuple[Requirement, list[str]]]:
    """Every pinned requirement of the lock with its hashes."""
    lines = (ROOT / "requirements.lock").read_text().replace("\\\n", " ").splitlines()
    found = [line.partition(" --hash=") for line in lines if not line.startswith("#")]
    return [(Requirement(pin.strip()), (mark + rest).split()) for pin, mark, rest in found]


def wanted() -> list[Requirement]:
    """Every requirement of the project and its extras, and of the build."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"].values()
    lines = chain(project["project"]["dependencies"], project["build-system"]["requires"], *extras)
    return [need for need in map(Requirement, lines) if need.name != "mohs"]


def locked(python: str) -> dict[str, str]:
    """Name and version of what pip installs from the lock on Linux."""
    here = {**LINUX, "python_full_version": python, "python_version": python.rpartition(".")[0]}
    pins = [pin for pin, _ in entries() if pin.marker is None or pin.marker.evaluate(here)]
    names = [canonicalize_name(pin.name) for pin in pins]
    assert len(names) == len(set(names)), "two versions of one package"
    return {name: str(pin.specifier).removeprefix("==") for name, pin in zip(names, pins, strict=True)}


@pytest.mark.parametrize("python", PYTHONS)
def test_lock_has_a_version_within_the_bounds_of_every_requirement(python: str) -> None:
    versions = locked(python)
    for need in wanted():
        version = versions.get(canonicalize_name(need.name))
        assert version, f"{need.name} is not locked: make lock"
        assert need.specifier.contains(version, prereleases=True), f"{need} is locked as {version}: make lock"


def test_extra_all_repeats_extras_that_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (everything,) = map(Requirement, extras["all"])
    assert everything.extras < extras.keys()


def test_every_version_is_exact_and_has_hashes() -> None:
    assert entries()
    for pin, hashes in entries():
        assert re.fullmatch(r"==[^*,]+", str(pin.specifier)), pin
        assert hashes, pin
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", entry) for entry in hashes), pin


def test_lock_names_packages_only() -> None:
    text = (ROOT / "requirements.lock").read_text()
    assert "/" not in text, "an address or a path"
    assert not re.search(r"^-", text, re.M), "an option of pip"


def test_install_checks_hashes_and_builds_nothing() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert "--require-hashes --only-binary :all: -r requirements.lock" in makefile
    assert "--no-deps --no-build-isolation -e ." in makefile
