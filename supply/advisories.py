"""Do the locked versions have known vulnerabilities?

    python supply/advisories.py

pip-audit asks OSV, the database of open-source advisories, about every version in requirements.lock. A service that is out of
reach, or that answers without knowing anything, must not pass for a clean result. So the first question is about a version
with a well-known vulnerability; unless the service reports it, this prints "not checked" with the reason, and the exit code is 0.
Exit code 1: a locked version is vulnerable.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

LOCK = Path(__file__).parents[1] / "requirements.lock"
OSV = "https://api.osv.dev/v1/query"
KNOWN = "pyyaml==5.3.1"  # CVE-2020-14343: its full loader runs code

ACCEPTED: dict[str, str] = {}  # id of an advisory: why it does not concern mohs


class NotCheckedError(Exception):
    """The service gave no answer that can be trusted."""


def vulnerabilities(requirements: Path, url: str) -> tuple[int, list[str]]:
    """Ask about the pinned versions of a requirements file.

    Args:
        requirements: The file; every version in it is pinned.
        url: Address of the service's query.

    Returns:
        The number of versions that were checked, and a line for each vulnerability.

    Raises:
        NotCheckedError: The service did not answer about every version.
    """
    command = [sys.executable, "-m", "pip_audit", "--no-deps", "--disable-pip", "--progress-spinner=off", "--format=json"]
    command += ["--vulnerability-service=osv", f"--osv-url={url}", f"--requirement={requirements}"]
    command += [f"--ignore-vuln={advisory}" for advisory in ACCEPTED]
    done = subprocess.run(command, capture_output=True, text=True)
    try:
        packages: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except ValueError:  # pip-audit stopped before it had a result
        reason = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise NotCheckedError(f"unreachable: {url} ({textwrap.shorten(reason, 120)})") from None
    if skipped := [package["name"] for package in packages if "skip_reason" in package]:
        raise NotCheckedError(f"no answer about {len(skipped)} of {len(packages)} packages, such as {skipped[0]}")
    return len(packages), [
        f"{package['name']} {package['version']}: {found['id']}, fixed in {', '.join(found['fix_versions']) or 'no version yet'}"
        for package in packages
        for found in package["vulns"]
    ]


def check(lock: Path, url: str) -> list[str]:
    """Print the outcome for a lock file and return its vulnerabilities."""
    with tempfile.TemporaryDirectory() as folder:
        known = Path(folder) / "known.txt"
        known.write_text(KNOWN + "\n")
        try:
            if not vulnerabilities(known, url)[1]:
                raise NotCheckedError(f"the service does not know the vulnerability of {KNOWN}")
            number, found = vulnerabilities(lock, url)
        except NotCheckedError as reason:
            print(f"known vulnerabilities of {lock.name}: not checked: {reason}")
            return []
    for line in found:
        print(f"vulnerable: {line}", file=sys.stderr)
    print(f"known vulnerabilities of the {number} versions in {lock.name}: {len(found)}")
    return found


def main() -> None:
    """Check requirements.lock."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lock", type=Path, default=LOCK, help="requirements file with pinned versions")
    parser.add_argument("--url", default=OSV, help="address of an OSV query")
    options = parser.parse_args()
    sys.exit(bool(check(options.lock, options.url)))


if __name__ == "__main__":
    main()
