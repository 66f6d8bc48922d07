"""Views of a table's columns as numbers, for models: numbers, categories, dates, texts and missing values.

    smooth view     numbers standardized (ranks where skewed), categories one-hot, dates as cycles, missing values marked
    tree view       raw numbers with NaN, categories one-hot or by frequency

The smooth view of new rows uses the statistics of the rows seen in training, so that a model trained on those can classify them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mohs.data.columns import Column
from mohs.data.row_inputs import Texts
from mohs.embed.choose_embedder import create_embedder
from mohs.embed.embed_data import Worker

Array = np.ndarray[Any, Any]
FEW = 8  # integers with at most this many values are one-hot too
LEVELS, ONE_HOT = 100, 20  # maximum number of one-hot categories in the smooth view, in the tree view
TEXT_AXES = 64


def embed_texts(texts: Sequence[str]) -> Array:
    """A column of texts as vectors (N, D), by the default embedder."""
    worker = Worker(create_embedder("auto", kind="text", device="cpu", examples=len(texts)), Texts(texts))
    vectors: Array = worker(list(texts)).numpy()
    return vectors


def smooth_view(
    columns: Sequence[Column], embed_text: Callable[[list[str]], Array] = embed_texts, *, seen: Sequence[Column] | None = None
) -> Array:
    """Columns -> (N, D) for linear and kernel heads; every column of the seen rows has a total variance of about 1.

    Args:
        columns: the columns of the rows.
        embed_text: texts -> vectors.
        seen: the same columns of the rows whose statistics are used, with levels of categories in the same order; default:
        `columns`.
    """
    parts: list[Array] = []
    for column, known in zip(columns, columns if seen is None else seen, strict=True):
        if column.role in ("numeric", "boolean"):
            parts.append(_smooth_number(column.values, known.values))
        elif column.role == "date":
            parts.append(_smooth_date(column.values, known.values))
        elif column.role == "categorical":
            rarest = max(2, len(known.values) // 1000)
            parts.append(_one_hot_block(column.values, known.values, len(known.levels), LEVELS, rarest))
        elif column.role == "text":
            parts.append(2 * _text_axes(column.values, known.values, embed_text, TEXT_AXES))
    return np.hstack(parts)


def tree_view(columns: Sequence[Column], embed_text: Callable[[list[str]], Array] = embed_texts) -> Array:
    """Columns -> (N, E) float32 with NaN, for trees."""
    parts: list[Array] = []
    for column in columns:
        values, n = column.values, len(column.values)
        if column.role in ("numeric", "boolean"):
            parts.append(values[:, None])
        elif column.role == "date":
            year = 1970 + values / 365.2425
            parts += [values[:, None], (year % 1 * 12)[:, None], (np.floor(values) % 7)[:, None]]
            if np.nanmean(values % 1 > 0) > 0.1:
                parts.append((values % 1 * 24)[:, None])
        elif column.role == "categorical":
            counts = np.bincount(values[values >= 0], minlength=len(column.levels))
            if len(column.levels) > 2:
                parts.append(_one_hot(values, values, len(column.levels), ONE_HOT, max(2, n // 1000)))
            else:
                parts.append(np.where(values < 0, np.nan, values)[:, None])
            if len(column.levels) > ONE_HOT:
                parts += [frequency_rank(counts)[values][:, None], np.append(counts, 0)[values][:, None]]
        elif column.role == "text":
            parts.append(_text_axes(values, values, embed_text, TEXT_AXES // 2))
    view: Array = np.clip(np.hstack(parts), -3e38, 3e38).astype(np.float32)
    return view


def frequency_rank(counts: Array) -> Array:
    """Rank of each level by frequency, the commonest 0; NaN last, for missing."""
    return np.append(np.argsort(np.argsort(-counts, kind="stable"), kind="stable").astype(np.float64), np.nan)


def _smooth_number(values: Array, seen: Array) -> Array:
    """One column of numbers -> value or rank, one-hot for few integers, and a mark for missing values."""
    known = seen[~np.isnan(seen)]
    middle = np.median(known) if len(known) else 0.0
    both = [np.where(np.isnan(one), middle, one) for one in (values, seen)]
    unique = np.unique(known)
    parts = [[one[:, None] for one in both]]
    if len(unique) > 10:
        z = (known - known.mean()) / (known.std() or 1.0)
        if abs((z**3).mean()) > 1 or (z**4).mean() > 5:  # skewed or heavy-tailed
            parts = [[_normal_scores(one, both[1])[:, None] for one in both]]
    elif 2 < len(unique) <= FEW and (unique == np.round(unique)).all():
        codes = [np.minimum(np.searchsorted(unique, one), len(unique) - 1) for one in both]
        parts.append([_one_hot_block(codes[0], codes[1], len(unique), FEW, 2)] * 2)
    made = [(own - of.mean(0)) / (of.std() or 1.0) if own.shape[1] == 1 else own for own, of in parts]
    if 2 <= np.isnan(seen).sum() <= len(seen) - 2:
        made.append(_block(*(np.isnan(one)[:, None].astype(np.float64) for one in (values, seen))))
    view: Array = np.clip(np.hstack(made), -6, 6)
    return view


def _normal_scores(values: Array, seen: Array) -> Array:
    """Values as the normal quantiles of their ranks among the seen ones."""
    from scipy.special import ndtri

    ordered, n = np.sort(seen), len(seen)
    ranks = (np.searchsorted(ordered, values) + np.searchsorted(ordered, values, side="right") + 1) / 2
    scores: Array = ndtri((np.clip(ranks, 1, n) - 0.5) / n)
    return scores


def _smooth_date(values: Array, seen: Array) -> Array:
    """Days since 1970 -> when, time of year, day of the week, time of the day where times differ, and missing."""
    middle = np.nanmedian(seen) if not np.isnan(seen).all() else 0.0
    days, known = (np.where(np.isnan(one), middle, one) for one in (values, seen))
    parts = [np.clip((days - known.mean()) / (known.std() or 1.0), -6, 6)]
    cycles = [(days, 365.2425), (np.floor(days), 7.0)] + ([(days, 1.0)] if (known % 1 > 0).mean() > 0.1 else [])
    for value, period in cycles:
        parts += [np.sin(2 * np.pi * value / period), np.cos(2 * np.pi * value / period)]
    if np.isnan(seen).any():
        parts.append(np.isnan(values).astype(np.float64))
    return np.stack(parts, 1)


def _one_hot(codes: Array, seen: Array, levels: int, most: int, rarest: int) -> Array:
    """Codes (N,), −1 for missing -> (N, L): the `most` commonest seen levels of at least `rarest` rows; others; missing.

    Codes from `levels` on are levels that were not seen.
    """
    counts = np.bincount(seen[seen >= 0], minlength=levels)
    kept = np.argsort(-counts, kind="stable")[: min(most, int((counts >= rarest).sum()))]
    place = np.full(levels + 1, len(kept))  # others
    place[kept] = np.arange(len(kept))
    place[-1] = len(kept) + 1  # missing
    every = np.where(codes < levels, place[np.minimum(codes, levels - 1)], len(kept))
    made = np.zeros((len(codes), len(kept) + 2))
    made[np.arange(len(codes)), every] = 1
    used = np.bincount(place[seen], minlength=len(kept) + 2) > 0
    return made[:, used]


def _one_hot_block(codes: Array, seen: Array, levels: int, most: int, rarest: int) -> Array:
    made = _one_hot(codes, seen, levels, most, rarest)
    return _block(made, made if codes is seen else _one_hot(seen, seen, levels, most, rarest))


def _text_axes(texts: Array, seen: Array, embed_text: Callable[[list[str]], Array], width: int) -> Array:
    """A column of texts -> the leading axes of the seen ones, with a total variance of 1."""
    known = np.asarray(embed_text([str(text) for text in seen]), dtype=np.float64)
    x = known if texts is seen else np.asarray(embed_text([str(text) for text in texts]), dtype=np.float64)
    x, known = x - known.mean(0), known - known.mean(0)
    _, _, axes = np.linalg.svd(known.T @ known)
    return _block(x @ axes[:width].T, known @ axes[:width].T)


def _block(units: Array, seen: Array) -> Array:
    """Units centered and scaled to a total variance of 1 over the seen ones."""
    block: Array = (units - seen.mean(0)) / (math.sqrt(float((seen - seen.mean(0)).var(0).sum())) or 1.0)
    return block
