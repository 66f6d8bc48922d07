"""Which code made a result: a commit if the package's files are as committed, otherwise a hash of the files themselves.

    3ad0f412ce60           commit; nothing in the package's folder is modified or added
    tree:9c1f04d27ab3      SHA-256 of the package's source files, where they differ from the commit or there is no history

A tree can be traced as well: `tree_hash` of a checkout whose files are the same gives the same hash. Only the package counts: new
results or edited pages do not change the version.
"""

from __future__ import annotations

import contextlib
import hashlib
import subprocess
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
SOURCES = (".py", ".toml")
DIGITS = 12


def code_version(package: Path = PACKAGE) -> str:
    """The commit of the package's files, or "tree:" and their hash."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        _git(package, "ls-files", "--error-unmatch", "__init__.py")  # not merely inside another repository
        if not _git(package, "status", "--porcelain", "--untracked-files=all", "--", "."):
            return _git(package, "rev-parse", "HEAD")[:DIGITS]
    return f"tree:{tree_hash(package)}"


def tree_hash(package: Path = PACKAGE) -> str:
    """A hash of the names and contents of the package's source files."""
    found = hashlib.sha256()
    for path in sorted(path for path in package.rglob("*") if path.suffix in SOURCES):
        content = path.read_bytes()
        found.update(f"{path.relative_to(package).as_posix()}\0{len(content)}\0".encode())
        found.update(content)
    return found.hexdigest()[:DIGITS]


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
