"""Which examples are shown, what stands on their cards, and their pictures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from mohs._core.errors import DataError
from mohs.audit.gallery_rows import AT_LEAST, MOST, SHARES, gallery_rows, group_rows, ranked_by
from mohs.audit.result import AuditResult
from mohs.audit.thumbnails import data_address, picture, shrink, thumbnails_of, webp
from mohs.data.examples import Examples
from mohs.hardness.table import add_columns, column
from mohs.report.gallery import EXCERPT, cards, excerpt, fields_of, flagged, names_of, title


class Gone:
    """Images whose files are no longer there."""

    shape = (4, 3, 8, 8)

    def __len__(self) -> int:
        return 4

    def __getitem__(self, places: torch.Tensor) -> torch.Tensor:
        raise DataError("gone.png: no such file")


def test_groups_hold_their_verdicts_most_certain_first(digits: AuditResult) -> None:
    table = digits.table
    verdicts = table.column("verdict").to_pylist()
    for group, rows in group_rows(table).items():
        chance = column(table, ranked_by(group))
        if group == "hard":
            assert {verdicts[i] for i in rows} <= {"hard", "easy"}
            assert len(rows) == AT_LEAST
            assert all(i in rows for i, verdict in enumerate(verdicts) if verdict == "hard")
            least = min((chance[i] for i in rows if verdicts[i] == "easy"), default=1)
            assert all(i in rows for i, verdict in enumerate(verdicts) if verdict == "easy" and chance[i] > least)
        else:
            wanted = [i for i, v in enumerate(verdicts) if v == group]
            assert rows == sorted(wanted, key=lambda i: -chance[i])[: len(rows)]
    assert len(set(gallery_rows(table))) == len(gallery_rows(table))


def test_at_most_600_and_unused_places_go_to_other_groups(synthetic: Callable[..., Any]) -> None:
    groups = group_rows(synthetic(9000, ["a", "b", "c"]))
    assert sum(map(len, groups.values())) == sum(SHARES.values()) == MOST == 600
    assert len(groups["hard"]) < SHARES["hard"]
    assert len(groups["mislabeled"]) > SHARES["mislabeled"]


def test_cards_and_flags_match_the_table(digits: AuditResult) -> None:
    names = names_of(digits.table, digits.classes)
    rows = digits.table.to_pylist()
    for card in cards(digits.table, names):
        row = rows[card["row"]]
        assert (card["id"], names[card["label"]], card["why"]) == (str(row["id"]), row["label"], row["why"])
        assert card["chance"] == row[ranked_by(card["group"])]
        if card["group"] == "mislabeled":
            assert card["suggested"] is not None
            assert names[card["suggested"]] == row["suggested_label"]
        elif row["suggested_label"] == row["label"]:
            assert card["suggested"] is None
    found = flagged(digits.table, names)
    assert [id_ for id_, *_ in found] == [str(rows[row]["id"]) for row in group_rows(digits.table)["mislabeled"]]
    assert all(old != new and 0 < p <= 100 for _, old, new, p in found)


def test_labels_outside_the_classes_are_named_too(synthetic: Callable[..., Any]) -> None:
    table = synthetic(60, ["a", "b", "c"])
    assert sorted(names_of(table, ["z", "b"])[:2]) == ["b", "z"]
    assert set(names_of(table, ["z", "b"])) == {"a", "b", "c", "z"}
    assert cards(table, names_of(table, []))


def test_rows_without_a_verdict_are_skipped(synthetic: Callable[..., Any]) -> None:
    table = synthetic(60, ["a", "b", "c"])
    verdicts = [None, *table.column("verdict").to_pylist()[1:]]
    assert 0 not in gallery_rows(add_columns(table, {"verdict": verdicts}))


@pytest.mark.parametrize(("path", "shown"), [("a/b/c.png", "c.png"), ("a\\b.png", "b.png"), ("/", "/"), (None, "17")])
def test_titles_are_the_files_names(path: str | None, shown: str) -> None:
    assert title({"id": "17", "path": path}) == shown  # type: ignore[typeddict-item]


def test_texts_are_cut_between_words_and_hidden_characters_are_shown() -> None:
    long = excerpt("word " * 100)
    assert long is not None
    assert len(long) <= EXCERPT + 2
    assert long.endswith("word …")
    assert excerpt("a\x07b\u202ec\nd") == "a␇b⟨U+202E⟩c␊d"
    assert excerpt("  short ") == "short"
    assert excerpt("") is excerpt(None) is None
    assert len(excerpt("x" * 500) or "") <= EXCERPT + 2


def test_cards_show_the_text_or_some_fields(texts: AuditResult, synthetic: Callable[..., Any]) -> None:
    rows = texts.table.column("text").to_pylist()
    shown = cards(texts.table, texts.classes)
    assert all(card["excerpt"] == excerpt(rows[card["row"]]) for card in shown)
    assert sum(card["excerpt"] is not None for card in shown) == len(shown) - 2
    own = ['{"age": 39, "work": "State-gov", "pay": null}'] * 60
    (first, *_) = cards(add_columns(synthetic(60, ["a", "b"]), {"fields": own}), ["a", "b"])
    assert first["fields"] == [("age", "39"), ("work", "State-gov"), ("pay", "missing")]
    assert fields_of("{") == fields_of("[1]") == fields_of(None) == []
    assert len(fields_of({str(i): i for i in range(30)})) == 6


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "CMYK", "I;16", "LA"])
def test_pictures_of_any_kind_become_small_webp(mode: str) -> None:
    image = Image.new(mode, (300, 100))
    small = shrink(image)
    assert small.size == (160, 53)
    assert image.size == (300, 100)
    assert webp(small)[8:12] == b"WEBP"
    assert data_address(image).startswith("data:image/webp;base64,")


def test_tiny_images_are_stored_losslessly() -> None:
    import io

    pixels = np.random.default_rng(0).integers(0, 255, (8, 8), dtype=np.uint8)
    back = Image.open(io.BytesIO(webp(shrink(Image.fromarray(pixels)))))
    np.testing.assert_array_equal(np.asarray(back.convert("L")), pixels)


def test_pictures_of_examples() -> None:
    inputs = torch.randint(0, 255, (4, 3, 9, 7), dtype=torch.uint8)
    thumbnails = thumbnails_of(Examples(inputs, torch.zeros(4, dtype=torch.long), ["a"]))
    assert thumbnails is not None
    (image,) = thumbnails([2])
    np.testing.assert_array_equal(np.asarray(image), inputs[2].permute(1, 2, 0))
    assert thumbnails_of(Examples(torch.rand(4, 9), torch.zeros(4, dtype=torch.long), ["a"])) is None
    gone = Examples(Gone(), torch.zeros(4, dtype=torch.long), ["a"])
    assert thumbnails_of(gone)([1]) == [None]  # type: ignore[misc]
    assert np.asarray(picture(torch.tensor([[[0.0, 1.0, float("nan")]]]))).tolist() == [[0, 255, 0]]
    assert picture(torch.rand(2, 5, 6)).size == (6, 5)
