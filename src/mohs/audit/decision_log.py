"""The decision log of `mohs review`: one JSON object per line, appended and never changed. The current state is a fold over the
lines.

    {"log": "mohs decisions", "version": 1, "data_hash": "91ab..."}
    {"seq": 1, "at": "2026-11-16T10:00:00.0Z", "by": "ada", "do": "decide", "decision": "change", "items": [["7", "dog", "fox"]]}
    {"seq": 2, "at": ..., "by": "ada", "do": "undo", "of": 1}          {"seq": 3, "at": ..., "by": "ada", "do": "redo", "of": 1}

An item is the example's id, its label when it was decided, and the new label. Each line ends with its CRC-32, and the numbers
`seq` follow each other, so that changed, missing and doubled lines are noticed. A line is written
and flushed to the disk before `append` returns; an incomplete last line was never confirmed and is dropped.

Several reviewers may decide on one example: the last decision that stands counts. "skip" leaves it open, "clear" takes the
reviewer's earlier decisions on it back, and undo and redo step through a reviewer's own entries.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from mohs._core.checksums import damaged
from mohs._core.errors import DataError, RunError
from mohs._core.folders import lock_file

LOG = "decisions.log"
MAGIC, VERSION = "mohs decisions", 1
FINAL = ("accept", "keep", "change", "exclude")
WRONG = ("accept", "change", "exclude")  # those by which the label was wrong
DECISIONS = (*FINAL, "skip", "clear")
STEPS = ("undo", "redo")
CRC_LENGTH = len(',"crc":"00000000"}')
LOST = "its decisions from there on cannot be trusted"
REPAIR = "restore it from a backup, or delete that line and all after it and decide on those examples again"
Item = tuple[str, str, str]  # id, label, new label


@dataclass(frozen=True)
class Entry:
    """A line of the log; do: "decide" with a decision and its items, or "undo" or "redo" of an earlier entry."""

    seq: int
    at: str
    by: str
    do: str
    decision: str = ""
    items: tuple[Item, ...] = ()
    of: int = 0

    @cached_property
    def by_id(self) -> dict[str, tuple[str, str]]:
        """Label and new label of each id."""
        return {id_: (label, new) for id_, label, new in self.items}

    def plain(self) -> dict[str, Any]:
        """The entry as a JSON object."""
        own = {"seq": self.seq, "at": self.at, "by": self.by, "do": self.do}
        return own | ({"decision": self.decision, "items": self.items} if self.do == "decide" else {"of": self.of})


@dataclass(frozen=True)
class Decision:
    """A decision on one example, with its author and time."""

    decision: str
    label: str
    new_label: str
    by: str
    at: str
    seq: int

    @property
    def outcome(self) -> tuple[str, str]:
        """The result for the example: excluded, or its final label."""
        return ("exclude", "") if self.decision == "exclude" else ("label", self.new_label or self.label)


@dataclass
class Decisions:
    """The state after some entries; `add` advances it by one. Two states of the same entries are equal."""

    entries: dict[int, Entry] = field(default_factory=dict)
    standing: dict[str, list[int]] = field(default_factory=dict)  # by id: decisions that are not undone, the oldest first
    done: dict[str, list[int]] = field(default_factory=dict)  # by reviewer: a stack of the entries that undo takes back
    undone: dict[str, list[int]] = field(default_factory=dict)
    last: int = 0

    def add(self, entry: Entry) -> list[str]:
        """Apply the next entry; returns the ids whose decision may have changed."""
        if entry.do == "decide":
            self.entries[entry.seq] = entry
            self.done.setdefault(entry.by, []).append(entry.seq)
            self.undone[entry.by] = []
            ids = self._stand(entry)
        else:
            target = self.next_step(entry.by, entry.do)
            if target != entry.of:
                raise ValueError(f"entry {entry.seq} is to {entry.do} {entry.of}, but {target} is next for {entry.by!r}")
            taken, given = (self.done, self.undone) if entry.do == "undo" else (self.undone, self.done)
            taken[entry.by].pop()
            given.setdefault(entry.by, []).append(entry.of)
            ids = self._fall(self.entries[entry.of]) if entry.do == "undo" else self._stand(self.entries[entry.of])
        self.last = entry.seq
        return ids

    def next_step(self, by: str, do: str) -> int | None:
        """The entry that this reviewer's undo or redo would concern."""
        stack = (self.done if do == "undo" else self.undone).get(by)
        return stack[-1] if stack else None

    def opinions(self, id_: str) -> dict[str, Decision]:
        """Each reviewer's standing decision on an example, the latest last."""
        found: dict[str, Decision] = {}
        for seq in self.standing.get(id_, ()):
            entry = self.entries[seq]
            found.pop(entry.by, None)
            if entry.decision != "clear":
                found[entry.by] = self._made(entry, id_)
        return found

    def decision(self, id_: str) -> Decision | None:
        """The decision that counts: the latest that is not a skip; a skip if there is no other; None if there is none."""
        found = list(self.opinions(id_).values())
        return next((made for made in reversed(found) if made.decision != "skip"), found[-1] if found else None)

    def disagreements(self) -> list[str]:
        """The ids on which reviewers decided for different outcomes."""
        return [id_ for id_ in self.standing if self.disputed(id_)]

    def disputed(self, id_: str) -> bool:
        """Whether reviewers decided for different outcomes of this example."""
        if len(self.standing.get(id_, ())) < 2:
            return False
        return len({made.outcome for made in self.opinions(id_).values() if made.decision != "skip"}) > 1

    def is_final(self, id_: str) -> bool:
        """Whether there is a decision on this example other than a skip."""
        made = self.decision(id_)
        return made is not None and made.decision != "skip"

    def history(self, id_: str) -> list[Decision]:
        """Every standing decision on an example, the oldest first."""
        return [self._made(self.entries[seq], id_) for seq in self.standing.get(id_, ())]

    def decided(self) -> Iterator[tuple[str, Decision]]:
        """Each id with the decision that counts, except skips."""
        for id_ in self.standing:
            made = self.decision(id_)
            if made is not None and made.decision != "skip":
                yield id_, made

    def _made(self, entry: Entry, id_: str) -> Decision:
        label, new = entry.by_id[id_]
        kept = entry.decision in ("accept", "change") and new == label  # the new label equals the old one
        return Decision("keep" if kept else entry.decision, label, "" if kept else new, entry.by, entry.at, entry.seq)

    def _stand(self, entry: Entry) -> list[str]:
        for id_, _, _ in entry.items:
            seqs = self.standing.setdefault(id_, [])
            seqs.append(entry.seq)
            seqs.sort()  # a redone decision returns to its earlier place
        return [id_ for id_, _, _ in entry.items]

    def _fall(self, entry: Entry) -> list[str]:
        for id_, _, _ in entry.items:
            self.standing[id_].remove(entry.seq)
            if not self.standing[id_]:
                del self.standing[id_]
        return [id_ for id_, _, _ in entry.items]


def fold(entries: Iterable[Entry]) -> Decisions:
    """The state after these entries."""
    state = Decisions()
    for entry in entries:
        state.add(entry)
    return state


class DecisionLog:
    """A log that is open for appending, by one process at a time; `state` is the fold over its entries."""

    def __init__(self, path: Path, data_hash: str) -> None:
        self.path, self.data_hash = path, data_hash
        self._lock = lock_beside(path)
        self.file = path.open("ab", buffering=0)
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def decide(self, by: str, decision: str, items: Sequence[Item], *, at: str | None = None) -> tuple[Entry, list[str]]:
        """Append a decision on one or more examples; returns the entry and the ids that it changed."""
        if decision not in DECISIONS:
            raise ValueError(f"unknown decision {decision!r}; known: {', '.join(DECISIONS)}")
        if not items:
            raise ValueError("a decision needs at least one example")
        return self._append(Entry(self.state.last + 1, at or now(), by, "decide", decision, tuple(items)))

    def step(self, by: str, do: str) -> tuple[Entry, list[str]] | None:
        """Append an undo or redo of the reviewer's last decision; None if there is nothing to undo or redo."""
        target = self.state.next_step(by, do)
        return None if target is None else self._append(Entry(self.state.last + 1, now(), by, do, of=target))

    def close(self) -> None:
        self.file.close()
        self._lock.close()

    def _open(self) -> None:
        header, entries, length = read_lines(self.path)
        if length < self.path.stat().st_size:
            os.truncate(self.path, length)
        if header is None:
            self._write({"log": MAGIC, "version": VERSION, "data_hash": self.data_hash})
        elif header["data_hash"] != self.data_hash:
            raise DataError(
                f"{self.path} holds decisions on other data (data_hash {header['data_hash']}, here it is {self.data_hash}): "
                "move it away to start anew"
            )
        self.state = _folded(entries, self.path)

    def _append(self, entry: Entry) -> tuple[Entry, list[str]]:
        self._write(entry.plain())
        return entry, self.state.add(entry)

    def _write(self, line: dict[str, Any]) -> None:
        """Write a line and wait until it is on the disk; if that fails, the file is as before."""
        data, length = encode(line), os.fstat(self.file.fileno()).st_size
        try:
            if self.file.write(data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
            os.fsync(self.file.fileno())
        except OSError:
            with contextlib.suppress(OSError):
                os.truncate(self.path, length)
            raise


def read_log(path: Path) -> tuple[str, Decisions]:
    """The data_hash that a log was made for, and the state of its decisions."""
    header, entries, _ = read_lines(path)
    if header is None:
        raise DataError(f"{path} holds no decisions: decide with mohs review first")
    return str(header["data_hash"]), _folded(entries, path)


def is_log(path: Path) -> bool:
    """Whether the file is a decision log, by its first bytes."""
    with path.open("rb") as file:
        return file.read(len(MAGIC) + 10).startswith(f'{{"log":"{MAGIC}"'.encode())


def read_lines(path: Path) -> tuple[dict[str, Any] | None, list[Entry], int]:
    """The header (None if there is none), the entries, and the length in bytes of the complete lines."""
    data = path.read_bytes()
    length = data.rfind(b"\n") + 1
    lines = [decode(line, path, number) for number, line in enumerate(data[:length].splitlines(), 1)]
    if not lines:
        return None, [], 0
    header, *rest = lines
    if header.get("log") != MAGIC or "data_hash" not in header:
        raise damaged(path, "line 1 is not the header of a decision log", lost=LOST, repair=REPAIR)
    if header.get("version", 0) > VERSION:
        raise DataError(f"{path} has the layout of version {header['version']}, this mohs reads {VERSION}: upgrade mohs")
    entries = [_entry(line, path, number) for number, line in enumerate(rest, 2)]
    strange = next((place for place, entry in enumerate(entries, 1) if entry.seq != place), None)
    if strange is not None:
        problem = f"line {strange + 1} is entry {entries[strange - 1].seq} instead of {strange}: lines are missing or in disorder"
        raise damaged(path, problem, lost=LOST, repair=REPAIR)
    return header, entries, length


def encode(line: dict[str, Any]) -> bytes:
    """A line of the log, with its checksum."""
    text = json.dumps(line, ensure_ascii=True, separators=(",", ":"))
    return f'{text[:-1]},"crc":"{zlib.crc32(text.encode()):08x}"}}\n'.encode()


def decode(line: bytes, path: Path, number: int) -> dict[str, Any]:
    """Parse a line and verify its checksum."""
    body = line[:-CRC_LENGTH] + b"}"
    if line[-CRC_LENGTH:] != f',"crc":"{zlib.crc32(body):08x}"}}'.encode():
        raise damaged(path, f"line {number} differs from its checksum", lost=LOST, repair=REPAIR)
    found: dict[str, Any] = json.loads(body)
    return found


def now() -> str:
    """The time in UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def lock_beside(path: Path) -> Any:
    """A locked file next to this one; the operating system frees it when the process ends."""
    try:
        file = path.with_name(f".{path.name}.lock").open("w")
    except OSError as error:
        raise RunError(f"{path.parent}: cannot be written ({error.strerror or error}), so decisions cannot be kept") from error
    try:
        lock_file(file.fileno())
    except OSError:
        file.close()
        raise RunError(f"{path}: another mohs review has it open; use that one, or stop it first") from None
    return file


def _folded(entries: Iterable[Entry], path: Path) -> Decisions:
    try:
        return fold(entries)
    except (ValueError, KeyError) as error:
        raise damaged(path, str(error), lost=LOST, repair=REPAIR) from error


def _entry(line: dict[str, Any], path: Path, number: int) -> Entry:
    try:
        items = tuple((str(id_), str(label), str(new)) for id_, label, new in line.get("items", ()))
        return Entry(line["seq"], line["at"], line["by"], line["do"], line.get("decision", ""), items, line.get("of", 0))
    except (KeyError, TypeError, ValueError) as error:
        raise damaged(path, f"line {number} is not an entry: {error!r}", lost=LOST, repair=REPAIR) from error
