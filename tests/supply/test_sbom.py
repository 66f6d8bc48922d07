"""The bill of materials lists what mohs[all] needs, and nothing else."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

SCRIPT = Path(__file__).parents[2] / "supply" / "sbom.py"
pytest.importorskip("cyclonedx", reason="cyclonedx-python-lib is not installed (the release extra)")


def test_bill(tmp_path: Path) -> None:
    needs = [Requirement(line) for line in distribution("mohs").requires or []]
    direct = {canonicalize_name(need.name) for need in needs if not need.marker or need.marker.evaluate({"extra": "all"})}
    try:
        for name in direct:
            version(name)
    except PackageNotFoundError as missing:
        pytest.skip(f"{missing.name} is not installed (the all extra)")
    wheel = tmp_path / "mohs.whl"
    wheel.write_bytes(b"a wheel")
    done = subprocess.run([sys.executable, "-W", "error", SCRIPT, wheel], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

    bill = json.loads((tmp_path / f"mohs-{version('mohs')}.cdx.json").read_text())
    parts = {part["bom-ref"]: part for part in bill["components"]}
    assert all(part["version"] == version(name) and part["licenses"] for name, part in parts.items())
    assert parts["torch"]["purl"] == f"pkg:pypi/torch@{version('torch')}"
    assert not parts.keys() & {"pytest", "ruff", "sphinx", "mohs"}

    depends = {line["ref"]: set(line.get("dependsOn", [])) for line in bill["dependencies"]}
    assert depends["mohs"] == direct
    assert "markupsafe" in depends["jinja2"]
    reached, todo = set(), ["mohs"]
    while todo:
        name = todo.pop()
        reached.add(name)
        todo.extend(depends[name] - reached)
    assert reached == parts.keys() | {"mohs"}

    (file,) = bill["metadata"]["component"]["components"]
    assert file["name"] == "mohs.whl"
    assert file["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(b"a wheel").hexdigest()}]


def test_without_files_it_asks_for_them() -> None:
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True)
    assert done.returncode == 1
    assert "which files make up the release?" in done.stderr
