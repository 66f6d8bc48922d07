from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mohs._core.plain_text import finite, page_json, shorten, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("a\x00b\x1b\x7f\n", "a␀b␛␡␊"),
        ("\u202egnp", "⟨U+202E⟩gnp"),
        ("odd\udc80", "odd⟨U+DC80⟩"),
        ("\u2028", "⟨U+2028⟩"),
        ("naïve, 日本, می‌خواهم", "naïve, 日本, می‌خواهم"),
        (7, "7"),
    ],
)
def test_what_cannot_be_seen_is_shown(text: object, shown: str) -> None:
    assert visible(text) == shown


@given(st.text(st.characters(), max_size=30))
@settings(deadline=None, derandomize=True)
def test_any_text_can_be_written_and_has_no_control_characters(text: str) -> None:
    visible(text).encode("utf-8")
    assert all(sign.isprintable() or sign in "\u200c\u200d" or sign.isspace() for sign in visible(text))
    assert len(shorten(text, 12)) <= 12 or not text


def test_long_names_keep_their_ends() -> None:
    assert shorten("a" * 30 + "b" * 30, 11) == "aaaaa…bbbbb"
    assert shorten("") == "(empty)"


@given(st.recursive(st.none() | st.text(st.characters(), max_size=8) | st.floats(), lambda one: st.lists(one, max_size=4)))
@settings(deadline=None, derandomize=True)
def test_json_for_a_page_is_ascii_without_markup(value: object) -> None:
    text = page_json({"k": value})
    assert text.isascii()
    assert not set("<>&") & set(text)
    assert json.loads(text)["k"] == finite(value)


def test_numbers_of_any_kind_become_plain() -> None:
    given_ = {"a": np.float32(1.5), "b": torch.tensor([1, 2]), 3: math.nan, "d": [math.inf, np.array([0.5])], "e": {1}}
    assert finite(given_) == {"a": 1.5, "b": [1, 2], "3": None, "d": [None, [0.5]], "e": "{1}"}
