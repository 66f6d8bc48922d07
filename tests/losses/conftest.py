"""The settings at which every loss in LOSSES is tested; a test with arguments `name` and `case` runs over all of them."""

from __future__ import annotations

import pytest

EVEN = [[0.7, 0.1, 0.1, 0.1], [0.1, 0.7, 0.1, 0.1], [0.1, 0.1, 0.7, 0.1], [0.1, 0.1, 0.1, 0.7]]
UNEVEN = [[0.7, 0.1, 0.1, 0.1], [0.0, 0.8, 0.2, 0.0], [0.05, 0.05, 0.9, 0.0], [0.0, 0.0, 0.5, 0.5]]
CASES: dict[str, list[dict]] = {
    "cross_entropy": [{}, {"label_smoothing": 0.1}],
    "mae": [{}],
    "gce": [{}, {"q": 0.0}, {"q": 1.0}],
    "truncated_gce": [{}, {"threshold": 0.3}],
    "focal": [{}, {"gamma": 0.5}],
    "symmetric": [{}, {"alpha": 6.0, "beta": 0.1}],
    "mse": [{}, {"mirror": True}, {"activation": "sigmoid"}, {"activation": "sigmoid", "mirror": True}],
    "encouraging": [
        {},
        {"log_end": 1.0},
        {"log_end": 1.0, "eps": 0.0},
        {"log_end": 1.0, "start": 0.5},
        {"log_end": 0.0, "bonus": 0.5},
        {"label_smoothing": 0.1},
    ],
    "gradient_rescaling": [{}, {"beta": 0.0, "eps": 0.0}, {"transform": "identity"}, {"normalize": "mean", "lam": 1.0}],
    "forward": [{"transition": EVEN}, {"transition": UNEVEN}],
    "backward": [{"transition": EVEN}, {"transition": UNEVEN}],
    "bootstrap_soft": [{}, {"detach": True}],
    "bootstrap_hard": [{}],
    "online_smoothing": [{"num_classes": 4}, {"num_classes": 4, "first": "uniform", "mix": 0.3}],
    "ldam": [{"counts": [100, 10, 5, 1]}],
    "logit_adjusted": [{"counts": [100, 10, 5, 1]}],
    "self_paced": [{}, {"kind": "linear"}],
    "spherical": [{}, {"eps": 0.01}],
    "taylor": [{}],
    "avh": [{}, {"label_smoothing": 0.1}],
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if {"name", "case"} <= set(metafunc.fixturenames):
        pairs = [pytest.param(name, case, id=f"{name}-{i}") for name, cases in CASES.items() for i, case in enumerate(cases)]
        metafunc.parametrize(("name", "case"), pairs)


@pytest.fixture
def loss_cases() -> dict[str, list[dict]]:
    return CASES
