"""Inputs on the device: one copy for all who share them, none kept for nobody."""

from __future__ import annotations

import gc

import torch

from mohs.train.device_cache import fits, on_device

ELSEWHERE = torch.device("meta")


def test_inputs_that_are_there_stay_where_they_are() -> None:
    x = torch.zeros(3)
    assert on_device(x, torch.device("cpu")) is x


def test_two_feeds_share_a_copy() -> None:
    x, y = torch.zeros(3), torch.zeros(3)
    copy = on_device(x, ELSEWHERE)
    assert on_device(x, ELSEWHERE) is copy
    assert on_device(y, ELSEWHERE) is not copy


def test_inputs_that_were_changed_are_brought_over_again() -> None:
    x = torch.zeros(3)
    copy = on_device(x, ELSEWHERE)
    x[0] = 1
    assert on_device(x, ELSEWHERE) is not copy


def test_a_copy_that_nobody_holds_is_gone() -> None:
    import weakref

    x = torch.zeros(3)
    gone = weakref.ref(on_device(x, ELSEWHERE))
    gc.collect()
    assert gone() is None
    assert on_device(x, ELSEWHERE) is not None


def test_a_processor_has_room() -> None:
    assert fits(torch.zeros(3), torch.device("cpu"))
