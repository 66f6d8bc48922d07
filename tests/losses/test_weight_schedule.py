from __future__ import annotations

import math

import pytest

from mohs.losses.weight_schedule import SCHEDULES, constant, deferred, gaussian_down, gaussian_up, linear, ramp_up, ramp_up_down


def test_amc_ramps_at_their_landmarks() -> None:
    """AMC: up 80, down 50, 300 epochs."""
    up = ramp_up(epochs=80, peak=0.1)
    assert up(0) == 0  # the authors' code: nothing in the first epoch
    assert up(1) == pytest.approx(0.1 * math.exp(-5 * (79 / 80) ** 2))
    assert up(40) == pytest.approx(0.1 * math.exp(-1.25))
    assert up(80) == up(299) == 0.1
    both = ramp_up_down(up=80, down=50, total=300, peak=0.1)
    assert both(0) == 0
    assert both(80) == both(249) == both(250) == 0.1
    assert both(275) == pytest.approx(0.1 * math.exp(-12.5 / 4))
    assert both(299) == pytest.approx(0.1 * math.exp(-12.5 * (1 - (300 - 299) / 50) ** 2))  # as the paper prints it
    assert gaussian_up(0, epochs=80) == pytest.approx(math.exp(-5))


def test_the_code_agrees_with_the_paper_for_50_epochs_only() -> None:
    code = lambda t, total, d: math.exp(-((0.5 * (t - (total - d))) ** 2) / d)
    assert code(275, 300, 50) == pytest.approx(gaussian_down(275, epochs=50, total=300))
    assert code(185, 200, 30) != pytest.approx(gaussian_down(185, epochs=30, total=200), rel=0.1)


def test_ramps_are_scale_free() -> None:
    for t in (0, 10, 100, 260, 290):
        assert ramp_up_down(up=80, down=50, total=300)(t) == pytest.approx(ramp_up_down(up=8, down=5, total=30)(t / 10))


def test_plain_schedules() -> None:
    assert constant(value=0.3)(7) == 0.3
    late = deferred(start=160, value=2.0)
    assert [late(0), late(159), late(160), late(200)] == [0, 0, 2, 2]
    line = linear(first=1, last=0, epochs=10)
    assert [line(0), line(5), line(10), line(50)] == [1, 0.5, 0, 0]


def test_repr_rebuilds() -> None:
    for made in (constant(value=1), deferred(start=1, value=2), linear(last=1, epochs=3), ramp_up(epochs=8)):
        assert eval(repr(made), dict(SCHEDULES)) == made


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ramp_up(epochs=0), "epochs must be over 0 epochs, got 0"),
        (lambda: linear(last=1, epochs=-1), "epochs must be over 0"),
        (lambda: ramp_up_down(up=80, down=50, total=100), "do not fit into total=100"),
        (lambda: ramp_up_down(up=80, down=0, total=100), "down must be over 0"),
    ],
)
def test_bad_settings(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
