"""Learning-rate schedules: their values where they are known, their form when a run is shortened, and what they refuse."""

from __future__ import annotations

import math
from typing import Any

import pytest

from mohs._core.specs import as_spec, create_spec
from mohs.train.learning_rate import LR_SCHEDULES, constant, cosine, gaussian_ramp, one_cycle, step


@pytest.mark.parametrize("name", LR_SCHEDULES)
@pytest.mark.parametrize("epochs", [1, 7, 300])
def test_every_schedule_is_a_share_of_the_peak_and_depends_on_the_share_of_the_run(name: str, epochs: int) -> None:
    schedule = LR_SCHEDULES[name]()
    for i in range(101):
        share = i / 100
        assert 0 <= schedule(share * epochs, epochs) <= 1
        assert schedule(share * epochs, epochs) == pytest.approx(schedule(share * 10, 10), abs=1e-9) or name == "step"
        beta1 = schedule.beta1(share * epochs, epochs)
        assert beta1 is None if name != "gaussian_ramp" else 0.5 <= beta1 <= 0.9
    assert 0 <= schedule(0, 0) <= 1  # a run of no epochs asks too
    schedule.beta1(0, 0)
    assert schedule.purpose
    assert schedule.formula


def test_constant_and_warm_up() -> None:
    assert constant()(3.3, 10) == 1
    assert constant(warmup=0.1)(0.5, 10) == pytest.approx(0.5)
    assert constant(warmup=5)(2.5, 100) == pytest.approx(0.5)


def test_step_by_shares_and_by_epochs() -> None:
    for schedule in (step(), step(at=[100, 150])):
        assert [schedule(epoch, 200) for epoch in (0, 99.9, 100, 149, 150, 199)] == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01])
    assert step(at=0.5)(5, 10) == pytest.approx(0.1)
    assert step(at=[0.5], factor=0.5, warmup=2)(1, 10) == pytest.approx(0.5)


def test_cosine() -> None:
    assert [cosine()(epoch, 10) for epoch in (0, 5, 10)] == pytest.approx([1, 0.5, 0], abs=1e-12)
    warm = cosine(warmup=2, last=0.1)
    assert [warm(epoch, 10) for epoch in (0, 1, 2, 6, 10)] == pytest.approx([0, 0.5, 1, 0.55, 0.1])


def test_one_cycle_matches_a_loop() -> None:
    steps = 50
    for i in range(steps + 1):
        rise = steps / 5
        expected = i / rise if i < rise else (steps - i) / (steps - rise)
        assert one_cycle()(i / 10, 5) == pytest.approx(expected)
    assert one_cycle(rise=0)(0, 5) == 1


def test_gaussian_ramp_matches_the_paper() -> None:
    ramp = gaussian_ramp(up=80, down=50)
    assert gaussian_ramp()(12.5, 300) == pytest.approx(ramp(12.5, 300))
    for t in range(300):
        up = math.exp(-5 * (1 - t / 80) ** 2) if t < 80 else 1.0
        down = math.exp(-12.5 * (1 - (300 - t) / 50) ** 2) if t >= 250 else 1.0
        assert ramp(t, 300) == pytest.approx(up * down)
        assert ramp.beta1(t, 300) == pytest.approx(down * 0.9 + (1 - down) * 0.5)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("linear", "unknown learning-rate schedule 'linear'; known: constant, step, cosine, one_cycle, gaussian_ramp"),
        ("cosine:length=3", "cosine has no field 'length'; its fields: warmup, last"),
        ("cosine:warmup=-1", "warmup must be at least 0, got -1"),
        ("cosine:last=2", "last must be between 0 and 1, got 2"),
        ({"name": "step", "at": [0.5, 60]}, r"at must hold only shares of the run \(below 1\) or only epochs .* got \[0.5, 60\]"),
        ({"name": "step", "at": [0, 0.5]}, "at must be over 0, got 0"),
        ("step:at=half", "step: at must be a list of numbers, got 'half'"),
        ("step:factor=-1", "factor must be at least 0, got -1"),
        ("one_cycle:rise=-1", "rise must be at least 0, got -1"),
        ("gaussian_ramp:up=0", "up must be over 0, got 0"),
        ("gaussian_ramp:down=0", "down must be over 0, got 0"),
        ("constant:warmup=x", "constant: warmup must be a finite number, got 'x'"),
    ],
)
def test_bad_schedules_are_named(spec: str | dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        create_spec(LR_SCHEDULES, "learning-rate schedule", as_spec(spec))
