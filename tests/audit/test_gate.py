"""Gates: what they say, when they hold, and what is refused."""

from __future__ import annotations

import re

import pytest

from mohs.audit.gate import parse_gate

NAMES = ("easy", "mislabeled", "noise")


@pytest.mark.parametrize(
    ("text", "name", "sign", "bound"),
    [
        ("mislabeled<0.02", "mislabeled", "<", 0.02),
        (" noise <= 5% ", "noise", "<=", 0.05),
        ("easy>=.5", "easy", ">=", 0.5),
        ("easy>1e-3", "easy", ">", 1e-3),
    ],
)
def test_gates_are_read(text: str, name: str, sign: str, bound: float) -> None:
    gate = parse_gate(text, NAMES)
    assert (gate.name, gate.sign, gate.bound) == (name, sign, pytest.approx(bound))
    assert parse_gate(str(gate), NAMES) == gate


@pytest.mark.parametrize(
    ("sign", "holds"), [("<", (True, False, False)), ("<=", (True, True, False)), (">", (False, False, True))]
)
def test_a_gate_holds_or_not(sign: str, holds: tuple[bool, ...]) -> None:
    gate = parse_gate(f"noise{sign}0.1", NAMES)
    assert tuple(gate.holds({"noise": share}) for share in (0.05, 0.1, 0.2)) == holds


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mislabeled<5", "can never fail: shares are from 0 to 1; write mislabeled<5% for 5 percent"),
        ("mislabeled<=1", "can never fail: shares are from 0 to 1; write mislabeled<=1% for 1 percent"),
        ("easy>=90", "can never pass: shares are from 0 to 1; write easy>=90% for 90 percent"),
        ("noise<200%", "can never fail: shares are from 0 to 1; give a bound between 0% and 100%"),
        ("easy>-1", "can never fail: shares are from 0 to 1; give a share"),
    ],
)
def test_a_gate_that_decides_nothing_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_gate(text, NAMES)


def test_a_gate_says_what_was_measured() -> None:
    gate = parse_gate("noise<5%", NAMES)
    assert gate.result({"noise": 0.021234}) == "gate passed: noise<0.05 (measured: 0.02123)"
    assert gate.result({"noise": 0.1}) == "gate failed: noise<0.05 (measured: 0.1)"


@pytest.mark.parametrize("text", ["", "mislabeled", "wrong<0.1", "noise=0.1", "noise<", "noise<many", "noise<0.1 easy>1"])
def test_what_is_no_gate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected NAME<NUMBER, such as mislabeled<0.02; names: easy"):
        parse_gate(text, NAMES)
    with pytest.raises(ValueError, match="is not a number"):
        parse_gate("noise<1.2.3", NAMES)
