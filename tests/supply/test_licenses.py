"""The check of licenses passes here, and fails on a package whose license is not allowed."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, distribution, distributions
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("license_expression", reason="license-expression is not installed (the release extra)")


@pytest.fixture
def licenses(script: Callable[[str], ModuleType]) -> ModuleType:
    return script("licenses")


def package(folder: Path, *metadata: str) -> Path:
    """A folder with one installed package, whose metadata have the given lines."""
    info = folder / "some_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("\n".join(["Metadata-Version: 2.4", "Name: some-package", "Version: 1.0", *metadata, "", ""]))
    return folder


def test_this_environment_passes(licenses: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    installed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}  # sys.path may hold more: setuptools adds to it
    refused = licenses.check(distributions(path=sorted(installed)))
    out, err = capsys.readouterr()
    assert (refused, err) == (0, "")
    assert out.endswith(": 0 not allowed\n")


@pytest.mark.parametrize(
    "metadata",
    [
        ["License-Expression: MIT"],
        ["License-Expression: GPL-3.0-or-later OR Apache-2.0"],
        ["License-Expression: Apache-2.0 WITH LLVM-exception AND (MIT OR AGPL-3.0-only)"],
        ["License-Expression: MPL-2.0"],
        ["Classifier: License :: OSI Approved :: BSD License"],
        ["License: MIT License"],
        ["License: Apache-2.0", "Classifier: Programming Language :: Python"],
    ],
)
def test_allowed(metadata: list[str], licenses: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert licenses.check(distributions(path=[str(package(tmp_path, *metadata))])) == 0
    assert capsys.readouterr().out.endswith("licenses of 1 packages: 0 not allowed\n")


@pytest.mark.parametrize(
    ("metadata", "named"),
    [
        (["License-Expression: AGPL-3.0-only"], "AGPL-3.0-only"),
        (["License-Expression: MIT AND GPL-2.0-only"], "MIT AND GPL-2.0-only"),
        (["License-Expression: Apache-2.0 WITH Classpath-exception-2.0"], "Apache-2.0 WITH Classpath-exception-2.0"),
        (["License-Expression: LicenseRef-Somebody"], "LicenseRef-Somebody"),
        (["License: Free for all but (some)"], "Free for all but (some)"),
        (["License: MIT", "Classifier: License :: OSI Approved :: GNU Affero License"], "GNU Affero License"),
        ([], "UNKNOWN"),
    ],
)
def test_not_allowed(
    metadata: list[str], named: str, licenses: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert licenses.check(distributions(path=[str(package(tmp_path, *metadata))])) == 1
    out, err = capsys.readouterr()
    assert err.startswith(f"not allowed: some-package: {named}.")
    assert out.endswith("licenses of 1 packages: 1 not allowed\n")


def test_exit_code(licenses: ModuleType, tmp_path: Path) -> None:
    folder = package(tmp_path, "License-Expression: GPL-3.0-only")
    assert subprocess.run([sys.executable, licenses.__file__, "--path", folder], capture_output=True).returncode == 1
    (folder / "some_package-1.0.dist-info" / "METADATA").write_text("Name: some-package\nLicense-Expression: ISC\n\n")
    assert subprocess.run([sys.executable, licenses.__file__, "--path", folder], capture_output=True).returncode == 0


def test_exceptions_are_needed_and_have_reasons(licenses: ModuleType) -> None:
    assert all(licenses.OTHERWISE_ALLOWED.values())
    for name, (expression, reason) in licenses.EXCEPTIONS.items():
        assert licenses.is_allowed(expression)
        assert reason
        try:
            stated = licenses.stated_license(distribution(name))
        except PackageNotFoundError:  # an extra that is not installed
            continue
        assert not licenses.is_allowed(stated), f"{name} says {stated} now: delete its exception"
