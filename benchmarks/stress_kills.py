"""Commands killed at random moments with −9, −15 and −2, one or more times, then run again: the result is that of one whole run.

Each command runs in a fork of a process that has imported everything and computed nothing, so that a try takes about as long as
the command itself. Half of the kills come after a random time, half at a random rename of a file, before or after it: there the
folder is between two states.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import random
import shutil
import signal
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

from stress_commands import Scenario, run_command, scenarios
from stress_outcome import Outcome

LIMIT = 180.0  # seconds for one command
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


def stress_kills(root: Path, count: int, seed: int = 0) -> Outcome:
    """Kill commands this many times."""
    outcome, rng = Outcome("kills"), random.Random(seed)
    every = [(scenario, *measured(scenario)) for scenario in scenarios(root)]
    while outcome.tries < count:
        kill_some(outcome, rng, *rng.choice(every))
    return outcome


def measured(scenario: Scenario) -> tuple[str, float, int]:
    """Result, seconds and renames of the whole command; what it imports is imported here, for the forks to come."""
    clear(scenario)
    code, text = in_child(lambda: imports_of(scenario))
    for name in text.split():
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    clear(scenario)
    began = time.perf_counter()
    code, text = in_child(lambda: counted(scenario))
    if code != 0:
        raise RuntimeError(f"{scenario.name} ends with {code}: {text}")
    result, renames = text.split()
    return result, time.perf_counter() - began, int(renames)


def kill_some(outcome: Outcome, rng: random.Random, scenario: Scenario, expected: str, seconds: float, renames: int) -> None:
    """Kill the command one to three times in a row, then run it to its end."""
    clear(scenario)
    what = scenario.name
    for _ in range(rng.choice((1, 2, 3))):
        number = rng.choice(SIGNALS)
        after = rng.uniform(0, seconds) if rng.random() < 0.5 else None
        at = 0 if after is not None else rng.randrange(1, 2 * renames + 1)
        what += f", {number.name} {f'at rename {at / 2}' if after is None else f'after {after:.2f} s'}"
        code, text = in_child(partial(killed_at, scenario, at, number), after=after, number=number)
        outcome.note(f"{scenario.name}, {number.name}" if code != 0 else "ended before its kill (not counted)")
        outcome.tries += code != 0
        if code not in (0, 130, -number):
            outcome.fail("hang" if code is None else "traceback", f"{what}: {code}: {text[-600:]}")
    code, text = in_child(partial(counted, scenario))
    if code is None:
        outcome.fail("hang", what)
    elif code != 0:
        outcome.fail("not resumed", f"{what}: {code}: {text[-600:]}")
    elif text.split()[0] != expected:
        outcome.fail("silent change", what)
    else:
        outcome.note("resumed to the same result")


def imports_of(scenario: Scenario) -> tuple[int, str]:
    """Run the command; the names of the modules that it imports."""
    before = set(sys.modules)
    ran = run_command(scenario.command)
    scenario.result(scenario.folder)
    return ran.code or 0, " ".join(sorted(set(sys.modules) - before))


def clear(scenario: Scenario) -> None:
    """An empty start."""
    shutil.rmtree(scenario.folder, ignore_errors=True)
    scenario.folder.parent.mkdir(parents=True, exist_ok=True)
    if scenario.name in ("embed", "score"):
        scenario.folder.mkdir()


def counted(scenario: Scenario) -> tuple[int, str]:
    """Run the command; its exit code, and the digest of its result with the number of renames, or the error."""
    number, rename = 0, Path.replace

    def replace(self: Path, target: Path) -> Path:
        nonlocal number
        number += 1
        return rename(self, target)

    Path.replace = replace  # type: ignore[method-assign,assignment]
    ran = run_command(scenario.command)
    if ran.code != 0:
        return (1 if ran.code is None else ran.code), ran.errors
    return 0, f"{scenario.result(scenario.folder)} {number}"


def killed_at(scenario: Scenario, at: int, number: signal.Signals) -> tuple[int, str]:
    """Run the command; send itself the signal before (odd) or after (even) a rename, or never (0)."""
    done, rename = 0, Path.replace

    def replace(self: Path, target: Path) -> Path:
        nonlocal done
        done += 1
        if done == at:
            os.kill(os.getpid(), number)
        moved = rename(self, target)
        done += 1
        if done == at:
            os.kill(os.getpid(), number)
        return moved

    Path.replace = replace  # type: ignore[method-assign,assignment]
    ran = run_command(scenario.command)
    return (1 if ran.code is None else ran.code), ran.errors


def in_child(
    work: Callable[[], tuple[int, str]], *, after: float | None = None, number: signal.Signals = signal.SIGKILL
) -> tuple[int | None, str]:
    """Exit code and text of the work in a forked process; killed after some seconds if given; None if it hangs."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        code = 1
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored by what a shell starts in the background
            warnings.simplefilter("ignore")
            code, text = work()
            with os.fdopen(write, "w") as pipe:
                pipe.write(text)
        except KeyboardInterrupt:
            code = 130
        finally:
            os._exit(code)
    os.close(write)
    code = wait(child, time.monotonic(), after, number)
    with os.fdopen(read) as pipe:
        return code, pipe.read()


def wait(child: int, began: float, after: float | None, number: signal.Signals) -> int | None:
    """The exit code of the child, negative for a signal; None if it had to be stopped because it hangs."""
    sent = False
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        now = time.monotonic() - began
        if after is not None and not sent and now >= after:
            os.kill(child, number)
            sent = True
        if now > LIMIT:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None
        time.sleep(0.002)
