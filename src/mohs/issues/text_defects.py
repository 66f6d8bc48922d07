"""Which texts are empty or cut off, and how alike two texts are written.

    empty_text       1 / (1 + number of letters and digits); flagged without any
    truncated_text   1 for a text of the greatest length, if more texts end there than chance explains; else length / greatest / 2

Texts that a column of 255 characters cut off all have that length. By chance the longest text is alone, or ends where others
nearly end: the number at the greatest length is compared with that of the WINDOW lengths below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mohs.issues.duplicates import View
from mohs.issues.found import Array, Found

WINDOW = 20  # lengths below the greatest, in characters
FEWEST = 3  # texts of the greatest length
BEYOND = 10  # times the number expected
GRAM, BUCKETS, CHUNK = 3, 2**18, 50_000


def text_defects(texts: Sequence[str]) -> dict[str, Found]:
    """Empty and truncated texts."""
    written = np.array([sum(map(str.isalnum, text)) for text in texts])
    length = np.array([len(text.rstrip()) for text in texts])
    longest = int(length.max(initial=0))
    at_end = length == longest
    below = ((length < longest) & (length >= longest - WINDOW)).sum() / WINDOW
    cut = longest > WINDOW and at_end.sum() >= max(FEWEST, BEYOND * below)
    score = np.where(at_end & cut, 1.0, length / max(longest, 1) / 2)
    return {
        "empty_text": Found(1 / (1.0 + written), written == 0),
        "truncated_text": Found(
            score, at_end & cut, details=[{"characters": longest, "texts": int(at_end.sum())}] if cut else []
        ),
    }


def written_view(texts: Sequence[str], rows: Any) -> View:
    """The nearest examples of each, among the candidates `rows` (N, k), by the character trigrams that they share."""
    from sklearn.feature_extraction.text import HashingVectorizer

    rows = np.asarray(rows)
    grams = HashingVectorizer(analyzer="char_wb", ngram_range=(GRAM, GRAM), n_features=BUCKETS, alternate_sign=False)
    vectors = grams.transform(texts)
    cosine = np.zeros(rows.shape)
    for rank in range(rows.shape[1]):
        for start in range(0, len(rows), CHUNK):
            part = slice(start, start + CHUNK)
            cosine[part, rank] = vectors[part].multiply(vectors[np.maximum(rows[part, rank], 0)]).sum(1).ravel()
    distances: Array = np.where(rows < 0, np.inf, np.sqrt(np.maximum(0, 2 - 2 * cosine)))
    order = np.argsort(distances, axis=1, kind="stable")
    return View(np.take_along_axis(rows, order, 1), np.take_along_axis(distances, order, 1))
