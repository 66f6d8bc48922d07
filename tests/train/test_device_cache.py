"""Inputs on the device: one copy for all who share them, none kept for nobody."""

from __future__ import annotations

import gc

import torch

from mohs.train.device_cache import fits, on_device

ELSEWHERE = torch.device("meta")


def test_inputs_on_the_device_are_not_copied() -> None:
    x = torch.zeros(3)
    assert on_device(x, torch.device("cpu")) is x


def test_two_feeds_share_one_copy() -> None:
    x, y = torch.zeros(3), torch.zeros(3)
    copy = on_device(x, ELSEWHERE)
    assert on_device(x, ELSEWHERE) is copy
    assert on_device(y, ELSEWHERE) is not copy


def test_modified_inputs_are_copied_again() -> None:
    x = torch.zeros(3)
    copy = on_device(x, ELSEWHERE)
    x[0] = 1
    assert on_device(x, ELSEWHERE) is not copy


def test_an_unused_copy_is_freed() -> None:
    import weakref

    x = torch.zeros(3)
    gone = weakref.ref(on_device(x, ELSEWHERE))
    gc.collect()
    assert gone() is None
    assert on_device(x, ELSEWHERE) is not None


def test_a_cpu_has_room() -> None:
    assert fits(torch.zeros(3), torch.device("cpu"))
