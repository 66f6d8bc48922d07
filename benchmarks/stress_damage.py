"""Every file of every kind of run folder, damaged in eight ways: the next command notices, or its result is the same.

Folders of finished commands, and of commands that were interrupted. A command that notices ends with exit code 3 and a message
that names the file; what the message says is then done, and the command must make the same result as on a whole folder.
"""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from stress_commands import Ran, Scenario, run_command, scenarios
from stress_outcome import Hang, Outcome, time_limit

LIMIT = 180.0  # seconds for one command
NOTICED = 3  # exit code
BLOCK = 64  # bytes that are zeroed
INTERRUPTED = (0.6,)  # of the files that a command writes
Way = Callable[[Path, random.Random, list[Path]], None]


def flip(path: Path, rng: random.Random, others: list[Path]) -> None:
    content = bytearray(path.read_bytes() or b"\0")
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def cut(path: Path, rng: random.Random, others: list[Path]) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: rng.randrange(max(1, len(content)))])


def empty(path: Path, rng: random.Random, others: list[Path]) -> None:
    path.write_bytes(b"")


def delete(path: Path, rng: random.Random, others: list[Path]) -> None:
    path.unlink()


def directory(path: Path, rng: random.Random, others: list[Path]) -> None:
    path.unlink()
    path.mkdir()


def append(path: Path, rng: random.Random, others: list[Path]) -> None:
    path.write_bytes(path.read_bytes() + rng.randbytes(rng.randrange(1, 64)))


def zero(path: Path, rng: random.Random, others: list[Path]) -> None:
    content = bytearray(path.read_bytes())
    start = rng.randrange(max(1, len(content)))
    content[start : start + BLOCK] = bytes(len(content[start : start + BLOCK]))
    path.write_bytes(content)


def swap(path: Path, rng: random.Random, others: list[Path]) -> None:
    alike = [one for one in others if one.suffix == path.suffix and one.read_bytes() != path.read_bytes()]
    path.write_bytes(rng.choice(alike).read_bytes() if alike else path.read_bytes()[::-1])


WAYS: dict[str, Way] = {way.__name__: way for way in (flip, cut, empty, delete, directory, append, zero, swap)}


def stress_damage(root: Path, *, times: int = 1, only: str = "", seed: int = 0) -> Outcome:
    """Damage each file of each folder in each way, this many times."""
    outcome, rng = Outcome("damaged files"), random.Random(seed)
    every = [one for one in scenarios(root) if one.name != "score" and only in one.name]
    for scenario in every:
        shutil.rmtree(scenario.folder, ignore_errors=True)
        scenario.folder.parent.mkdir(parents=True, exist_ok=True)
        if scenario.name == "embed":
            scenario.folder.mkdir()
        renames, ran = counted(scenario.command)
        if ran.code != 0:
            outcome.fail("traceback", f"{scenario.name}: the command itself ends with {ran.code}: {ran.errors[-500:]}")
            continue
        expected = scenario.result(scenario.folder)
        states = {"finished": scenario.folder.with_name(f"{scenario.folder.name}-finished")}
        shutil.rmtree(states["finished"], ignore_errors=True)
        shutil.copytree(scenario.folder, states["finished"])
        for part in INTERRUPTED:
            name = f"interrupted at {part:.0%}"
            states[name] = scenario.folder.with_name(f"{scenario.folder.name}-{part}")
            interrupt(scenario, int(part * renames), states[name])
        for state, store in states.items():
            for way in WAYS:
                for _ in range(times):
                    damage_each(outcome, rng, scenario, store, state, way, expected)
    return outcome


def damage_each(
    outcome: Outcome, rng: random.Random, scenario: Scenario, store: Path, state: str, way: str, expected: str
) -> None:
    """Damage every file of the stored folder in turn, and run the commands on it."""
    files = sorted(one for one in store.rglob("*") if one.is_file())
    for file in files:
        commands = [scenario.command, *(scenario.readers if state == "finished" else [])]
        for command in commands:
            shutil.rmtree(scenario.folder, ignore_errors=True)
            shutil.copytree(store, scenario.folder)
            target = scenario.folder / file.relative_to(store)
            WAYS[way](target, rng, [one for one in files if one != file])
            outcome.tries += 1
            what = f"{scenario.name} {state}, {way} of {file.relative_to(store)}, then {command[0]}"
            try:
                with time_limit(LIMIT):
                    judge(outcome, scenario, command, target, what, expected)
            except Hang:
                outcome.fail("hang", what)


def judge(outcome: Outcome, scenario: Scenario, command: list[str], target: Path, what: str, expected: str) -> None:
    """Run the command on the damaged folder; follow its advice."""
    ran = run_command(command)
    if ran.code is None:
        outcome.fail("traceback", f"{what}: {ran.errors[-600:]}")
    elif ran.code == 0:
        if command == scenario.command and result_of(scenario) != expected:
            outcome.fail("silent change", what)
        outcome.note("the same result" if "damaged" not in ran.errors else "made again")
    elif ran.code == NOTICED and not target.exists() and re.search("is not finished.*: run|: run it without", ran.errors):
        outcome.note("noticed")
    elif target.name == "checksums.json" and "holds another run" in ran.errors:
        outcome.note("refused, checksums of another run")
    elif target.name == ".lock":
        outcome.note("refused, lock")
    elif ran.code != NOTICED or not (target.name in ran.errors or "checksums.json" in (target.name, *ran.errors.split("/"))):
        outcome.fail("message", f"{what}: exit code {ran.code}: {ran.errors[-400:]}")
    else:
        outcome.note("noticed")
        repair(outcome, scenario, ran, what, expected)


def repair(outcome: Outcome, scenario: Scenario, ran: Ran, what: str, expected: str) -> None:
    """Do what the messages say, until the command succeeds."""
    for _ in range(4):
        message = ran.errors.strip().splitlines()[-1]
        named = re.search(r"remove the folder (\S+) and", message)
        first = re.match(r"mohs: (?:measure \S+ of \S+: )?(/[^\s:]+)(?: is |: )", message)
        if named:
            shutil.rmtree(named[1], ignore_errors=True)
        elif first and ("remove this file" in message or "move the folder away" in message):
            path = Path(first[1])
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        elif "run the audit again" not in message:
            break
        ran = run_command(scenario.command)
        if ran.code == 0:
            if result_of(scenario) != expected:
                outcome.fail("changed by repair", what)
            else:
                outcome.note("repaired as the message says")
            return
        if ran.code is None:
            break
    outcome.fail("not repaired", f"{what}: {ran.errors[-500:]}")


def result_of(scenario: Scenario) -> str:
    """The digest of the result; the error if it cannot be read."""
    try:
        return scenario.result(scenario.folder)
    except Exception as error:
        return repr(error)


def counted(command: list[str]) -> tuple[int, Ran]:
    """Run a command and count the files that it renames into place."""
    with renaming(0) as count:
        ran = run_command(command)
    return count[0], ran


def interrupt(scenario: Scenario, number: int, store: Path) -> None:
    """Store the folder as a command leaves it that is interrupted at this rename."""
    shutil.rmtree(scenario.folder, ignore_errors=True)
    if scenario.name == "embed":
        scenario.folder.mkdir()
    with renaming(max(1, number)):
        run_command(scenario.command)
    shutil.rmtree(store, ignore_errors=True)
    shutil.copytree(scenario.folder, store)


@contextmanager
def renaming(stop: int) -> Iterator[list[int]]:
    """Count the renames in the block; raise KeyboardInterrupt instead of the one with this number, if it is not 0."""
    rename, count = Path.replace, [0]

    def replace(self: Path, target: Path) -> Path:
        count[0] += 1
        if count[0] == stop:
            raise KeyboardInterrupt
        return rename(self, target)

    Path.replace = replace  # type: ignore[method-assign,assignment]
    try:
        yield count
    finally:
        Path.replace = rename  # type: ignore[method-assign]
