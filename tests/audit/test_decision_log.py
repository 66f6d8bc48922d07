"""The decision log: what holds is a fold over its lines, undo and redo are inverse, and no confirmed decision is lost."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mohs._core.errors import DataError, RunError
from mohs.audit.decision_log import DECISIONS, FINAL, Decision, DecisionLog, Decisions, fold, read_lines, read_log
from mohs.audit.decisions import read_decisions

IDS, REVIEWERS = ["7", "=8", "ü\n'9'"], ["ada", "bo"]
ACTS = st.one_of(
    st.tuples(
        st.just("decide"),
        st.sampled_from(REVIEWERS),
        st.sampled_from(DECISIONS),
        st.lists(st.sampled_from(IDS), min_size=1, unique=True),
        st.sampled_from(["cat", "dog"]),
    ),
    st.tuples(st.sampled_from(["undo", "redo"]), st.sampled_from(REVIEWERS)),
)


def play(log: DecisionLog, acts: list[Any]) -> None:
    for act in acts:
        if act[0] == "decide":
            _, by, decision, ids, new = act
            log.decide(by, decision, [(id_, "old", new if decision in ("accept", "change") else "") for id_ in ids])
        else:
            log.step(act[1], act[0])


def held(state: Decisions) -> dict[str, Decision]:
    return {id_: made for id_ in IDS if (made := state.decision(id_)) is not None}


def naive(acts: list[Any]) -> dict[str, str]:
    """The decision that counts on each id, replayed without any clever state: a list of [by, decision, ids, undone]."""
    made: list[list[Any]] = []
    redo: dict[str, list[list[Any]]] = {name: [] for name in REVIEWERS}
    for act in acts:
        by = act[1]
        if act[0] == "decide":
            made.append([by, act[2], act[3], False])
            redo[by] = []
        elif act[0] == "undo":
            own = [one for one in made if one[0] == by and not one[3]]
            if own:
                own[-1][3] = True
                redo[by].append(own[-1])
        elif redo[by]:
            redo[by].pop()[3] = False
    found = {}
    for id_ in IDS:
        latest: dict[str, tuple[int, str]] = {}
        for place, (by, decision, ids, undone) in enumerate(made):
            if id_ in ids and not undone:
                latest[by] = (place, decision)
        order = [decision for _, decision in sorted(latest.values()) if decision != "clear"]
        final = [decision for decision in order if decision != "skip"]
        if order:
            found[id_] = (final or order)[-1]
    return found


@given(st.lists(ACTS, max_size=25))
@settings(max_examples=60, deadline=None)
def test_the_state_is_the_fold_over_the_file(acts: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "decisions.log"
        log = DecisionLog(path, "abc")
        play(log, acts)
        log.close()
        assert {id_: made.decision for id_, made in held(log.state).items()} == naive(acts)
        data_hash, again = read_log(path)
        assert (data_hash, again) == ("abc", log.state)
        rows = {row["id"]: row["decision"] for row in read_decisions(path)}
        assert rows == {id_: made.decision for id_, made in held(again).items() if made.decision in FINAL}


@given(st.lists(ACTS, max_size=12), st.sampled_from(REVIEWERS))
@settings(max_examples=40, deadline=None)
def test_redo_is_the_inverse_of_undo(acts: list[Any], by: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = DecisionLog(Path(folder) / "decisions.log", "abc")
        play(log, acts)
        before = held(log.state)
        undone = log.step(by, "undo")
        if undone is not None:
            assert log.step(by, "redo") is not None
        assert held(log.state) == before
        log.decide(by, "keep", [(IDS[0], "old", "")])
        log.step(by, "undo")
        assert held(log.state) == before
        log.close()


@given(st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_a_torn_last_line_is_dropped_and_nothing_else(cut: int) -> None:
    acts = [("decide", "ada", "change", [id_], "dog") for id_ in IDS] + [("undo", "ada")]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "decisions.log"
        log = DecisionLog(path, "abc")
        play(log, acts)
        log.close()
        whole = path.read_bytes()
        cut %= len(whole)
        path.write_bytes(whole[:cut])
        complete = whole[:cut].count(b"\n")
        again = DecisionLog(path, "abc")
        _, entries, _ = read_lines(path)
        assert len(entries) == max(0, complete - 1)
        assert again.state == fold(entries)
        again.decide("bo", "keep", [(IDS[0], "old", "")])  # appended after the last complete line
        again.close()
        assert len(read_lines(path)[1]) == max(0, complete - 1) + 1


@given(st.integers(0, 10_000), st.integers(1, 255))
@settings(max_examples=60, deadline=None)
def test_damage_is_noticed(place: int, change: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "decisions.log"
        log = DecisionLog(path, "abc")
        play(log, [("decide", "ada", "keep", [id_], "") for id_ in IDS])
        log.close()
        data = bytearray(path.read_bytes())
        data[place % len(data)] ^= change
        path.write_bytes(bytes(data))
        if place % len(data) == len(data) - 1:  # the end of the last line: it counts as never finished
            assert len(read_lines(path)[1]) == len(IDS) - 1
        else:
            with pytest.raises(DataError, match=r"is damaged|holds no decisions"):
                read_log(path)


def test_reviewers_disagree_only_on_different_outcomes(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path / "decisions.log", "abc")
    log.decide("ada", "accept", [("1", "cat", "dog"), ("2", "cat", "dog"), ("3", "cat", "dog"), ("4", "cat", "dog")])
    log.decide("bo", "change", [("1", "cat", "dog")])
    log.decide("bo", "keep", [("2", "cat", "")])
    log.decide("bo", "skip", [("3", "cat", "")])
    log.decide("bo", "exclude", [("4", "cat", "")])
    assert log.state.disagreements() == ["2", "4"]
    assert {by: made.decision for by, made in log.state.opinions("2").items()} == {"ada": "accept", "bo": "keep"}
    log.step("bo", "undo")
    assert log.state.disagreements() == ["2"]
    log.close()


def test_a_change_to_the_label_that_it_has_keeps_it(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path / "decisions.log", "hash")
    log.decide("ada", "change", [("7", "cat", "cat"), ("8", "dog", "cat")])
    assert [(made.decision, made.new_label) for _, made in log.state.decided()] == [("keep", ""), ("change", "cat")]
    log.close()


def test_a_bulk_decision_is_one_undo(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path / "decisions.log", "abc")
    log.decide("ada", "accept", [(str(i), "cat", "dog") for i in range(1000)])
    assert len(list(log.state.decided())) == 1000
    log.step("ada", "undo")
    assert list(log.state.decided()) == []
    assert log.step("bo", "undo") is None
    log.close()


def test_one_process_at_a_time_and_one_data_set(tmp_path: Path) -> None:
    path = tmp_path / "decisions.log"
    log = DecisionLog(path, "abc")
    with pytest.raises(RunError, match="another mohs review has it open"):
        DecisionLog(path, "abc")
    log.close()
    with pytest.raises(DataError, match="decisions on other data"):
        DecisionLog(path, "abd")
    DecisionLog(path, "abc").close()


def test_a_full_disk_is_an_error_and_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = DecisionLog(tmp_path / "decisions.log", "abc")
    log.decide("ada", "keep", [("1", "cat", "")])
    before = (tmp_path / "decisions.log").read_bytes()

    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        log.decide("ada", "keep", [("2", "cat", "")])
    monkeypatch.undo()
    assert (tmp_path / "decisions.log").read_bytes() == before
    assert log.state.decision("2") is None
    log.decide("ada", "keep", [("3", "cat", "")])
    log.close()
    assert [entry.seq for entry in read_lines(tmp_path / "decisions.log")[1]] == [1, 2]


CHANGES = {
    "missing": (lambda lines: [*lines[:2], *lines[3:]], 3),
    "doubled": (lambda lines: [*lines[:3], *lines[2:]], 4),
    "reversed": (lambda lines: [lines[0], *reversed(lines[1:])], 2),
}


@pytest.mark.parametrize("how", CHANGES)
def test_lines_that_are_missing_or_in_disorder_are_noticed(how: str, tmp_path: Path) -> None:
    change, line = CHANGES[how]
    path = tmp_path / "decisions.log"
    log = DecisionLog(path, "abc")
    for number in range(3):
        log.decide("ada", "keep", [(str(number), "cat", "")])
    log.close()
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(change(lines)))
    with pytest.raises(DataError, match=f"line {line} is entry .* delete that line and all after it"):
        read_log(path)
    path.write_bytes(b"".join(change(lines)[: line - 1]))  # the remedy that the error names
    assert len(list(read_log(path)[1].decided())) == line - 2
