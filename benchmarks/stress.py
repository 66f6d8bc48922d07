"""Does damage, a kill or odd input ever end in a traceback, a hang or, worse, another result? Thousands of random tries.

    make stress
    python benchmarks/stress.py [--kills 200] [--damages 1] [--specs 50000] [--losses 200000] [--seed 0] [--out results/stress.md]

Each part is described in its own file: `stress_kills.py`, `stress_damage.py`, `stress_specs.py`, `stress_losses.py`. A part that
is given 0 is left out. Prints tries and failures; exits with 1 if there are failures.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PARTS = ("kills", "damages", "specs", "losses")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200, help="number of kills")
    parser.add_argument("--damages", type=int, default=1, help="number of times that each file is damaged in each of 8 ways")
    parser.add_argument("--specs", type=int, default=50_000, help="number of random specs, runs and recipes")
    parser.add_argument("--losses", type=int, default=200_000, help="number of random loss calls")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="Markdown file for the figures")
    parser.add_argument("--part", choices=PARTS, help="run this part in this process and print its section")
    given = parser.parse_args()
    if given.part:
        print(section(given.part, getattr(given, given.part), given.seed))
        return
    sections = [apart(part, getattr(given, part), given.seed) for part in PARTS if getattr(given, part)]
    page = "\n".join((heading(), *sections))
    print(page)
    if given.out is not None:
        given.out.write_text(page)
    sys.exit(any("\nFailures" in text for text in sections))


def apart(part: str, count: int, seed: int) -> str:
    """A part in its own process: kills fork, specs limit their memory."""
    command = [sys.executable, __file__, "--part", part, f"--{part}", str(count), "--seed", str(seed)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    return done.stdout if done.returncode == 0 else f"## {part}\n\nFailures: the part itself ended with {done.returncode}.\n"


def section(part: str, count: int, seed: int) -> str:
    """Run a part and describe its outcome."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="mohs-stress-") as folder:
        if part == "kills":
            from stress_kills import stress_kills

            outcome = stress_kills(Path(folder), count, seed)
        elif part == "damages":
            from stress_damage import stress_damage

            outcome = stress_damage(Path(folder), times=count, seed=seed)
        elif part == "specs":
            from stress_specs import stress_specs

            outcome = stress_specs(count, seed)
        else:
            from stress_losses import stress_losses

            outcome = stress_losses(count, seed)
    minutes = (time.perf_counter() - began) / 60
    lines = [f"## {outcome.part}", "", f"{outcome.tries:,} tries, {outcome.failures:,} failures, {minutes:.1f} minutes.", ""]
    if outcome.notes:
        lines += ["| outcome | times |", "|---|---|", *(f"| {name} | {n:,} |" for name, n in sorted(outcome.notes.items())), ""]
    if outcome.failures:
        counts = ", ".join(f"{kind} {n}" for kind, n in outcome.failed.items())
        lines += [f"Failures: {counts}.", "", *(f"- `{' '.join(one.split())[:600]}`" for one in outcome.shown), ""]
    return "\n".join(lines)


def heading() -> str:
    """Title, and where it was measured."""
    from machine import machine

    here = machine()
    facts = ", ".join(f"{name} {here[name]}" for name in ("cpu", "torch", "python", "mohs", "commit", "date"))
    return f"# Stress test\n\nMade by `benchmarks/stress.py` (`make stress`); {facts}.\n"


if __name__ == "__main__":
    main()
