"""What does a release of mohs consist of? The software bill of materials, as CycloneDX JSON.

    python supply/sbom.py dist/*    # writes dist/mohs-VERSION.cdx.json

It lists the files of the release with their SHA-256, and every package that `pip install mohs[all]` brings in the tested
environment, with its version, its license and what it depends on. The hashes of those packages are in requirements.lock.
"""

from __future__ import annotations

import hashlib
import sys
from importlib.metadata import distribution
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from licenses import license_of


def needed(root: str) -> dict[str, set[str]]:
    """Return every package that a requirement brings on this machine, each with the packages that it needs itself.

    Args:
        root: A requirement such as "mohs[all]"; it and what it needs are installed.

    Returns:
        Normalized names, the root's first.
    """
    graph: dict[str, set[str]] = {}
    seen: set[tuple[str, str]] = set()
    todo = [Requirement(root)]
    while todo:
        requirement = todo.pop()
        name = canonicalize_name(requirement.name)
        needs = graph.setdefault(name, set())
        for extra in {"", *requirement.extras} - {e for n, e in seen if n == name}:
            seen.add((name, extra))
            for line in distribution(name).requires or []:
                need = Requirement(line)
                if need.marker is None or need.marker.evaluate({"extra": extra}):
                    needs |= {canonicalize_name(need.name)} - {name}
                    todo.append(need)
    return graph


def component(name: str) -> Component:
    """Return an installed package as a component of the bill."""
    package = distribution(name)
    return Component(
        name=package.name,
        version=package.version,
        type=ComponentType.LIBRARY,
        purl=PackageURL("pypi", None, name, package.version),
        bom_ref=name,
        licenses=[LicenseFactory().make_from_string(license_of(package))],
    )


def bill(files: list[Path]) -> str:
    """Return the bill of a release as CycloneDX 1.6, validated against its schema.

    Args:
        files: Wheel and sdist of the release.

    Returns:
        JSON text.
    """
    graph = needed("mohs[all]")
    parts = {name: component(name) for name in graph}
    release = parts.pop("mohs")
    for file in files:
        digest = HashType(alg=HashAlgorithm.SHA_256, content=hashlib.sha256(file.read_bytes()).hexdigest())
        release.components.add(Component(name=file.name, type=ComponentType.FILE, hashes=[digest], bom_ref=file.name))
    bom = Bom(components=parts.values())
    bom.metadata.component = release
    for name, needs in graph.items():
        bom.register_dependency(parts.get(name, release), [parts[need] for need in needs])
    text = JsonV1Dot6(bom).output_as_string(indent=2)
    if problem := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        sys.exit(f"the bill of materials does not match the schema of CycloneDX: {problem}")
    return text


def main() -> None:
    """Write the bill beside the files of the release."""
    files = [Path(file) for file in sys.argv[1:]]
    if not files:
        sys.exit("which files make up the release? python supply/sbom.py dist/*")
    target = files[0].with_name(f"mohs-{distribution('mohs').version}.cdx.json")
    target.write_text(bill(files) + "\n")
    print(target)


if __name__ == "__main__":
    main()
