"""The kernel of a whole loss: margin, curve, weights, reduction and gradient of each row from one read of its logits.

    value = s (C ℓ(m) − (a/K) Σ_k w_k (z_k − z_y))                  s: sample weight, w: class weights (1), a: label smoothing
    ∂z_k  = s (C ℓ'(m) ([k = y] − [k ≠ y] q_k) + (a/K) (W [k = y] − w_k))      C = (1 − a) w_y + a W/K,  W = Σ w

Smoothing is for cross-entropy, where −log p_k = softplus(−m) − (z_k − z_y). Both are divided by Σ w_y s for the mean. The
logits are read once and the gradient written once for K ≤ 8192; beyond, a second read comes from the cache.
"""

from __future__ import annotations

import triton
import triton.language as tl

from mohs.losses._kernels.add_up import GROUP, MOST, PATIENCE, READY, SHARES, add_up, is_last
from mohs.losses._kernels.curves import curve, long_exp, long_margin, parts, rescaling_weight
from mohs.margin._triton import INF, label_logit, load, margin_of, offsets, store_gradient


@triton.jit
def row_weights(y, row, known, kept, weight_ptr, sample_ptr, WEIGHT: tl.constexpr, SAMPLE: tl.constexpr):
    """The class weight of each row's label and its sample weight."""
    w = tl.full(y.shape, 1.0, tl.float32)
    s = tl.full(y.shape, 1.0, tl.float32)
    if WEIGHT:
        w = tl.load(weight_ptr + y, mask=known, other=0.0).to(tl.float32)
    if SAMPLE:
        s = tl.load(sample_ptr + row, mask=kept, other=0.0).to(tl.float32)
    return w, s


@triton.jit(do_not_specialize=["rows", "classes", "ignore"])
def denominator_kernel(
    y_ptr, weight_ptr, sample_ptr, parts_ptr, out_ptr, counter_ptr, rows, classes, ignore,
    WEIGHT: tl.constexpr, SAMPLE: tl.constexpr, SUM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Σ w_y s over the rows that count: of BLOCK rows in each program, with SUM added up; or of all in one program."""
    if SUM:
        first = tl.program_id(0) * BLOCK
        stop = tl.minimum(first + BLOCK, rows)
        part = weight_total(y_ptr, weight_ptr, sample_ptr, first, stop, classes, ignore, WEIGHT, SAMPLE, BLOCK)
        add_up(part, parts_ptr, out_ptr, counter_ptr)
    else:
        tl.store(out_ptr, weight_total(y_ptr, weight_ptr, sample_ptr, 0, rows, classes, ignore, WEIGHT, SAMPLE, BLOCK))


@triton.jit
def weight_total(
    y_ptr, weight_ptr, sample_ptr, begin, rows, classes, ignore,
    WEIGHT: tl.constexpr, SAMPLE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Σ w_y s over the rows that count, from begin to the last."""
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(begin, rows, BLOCK):
        row = first + tl.arange(0, BLOCK)
        y = tl.load(y_ptr + row, mask=row < rows, other=0).to(tl.int64)
        kept = (row < rows) & (y != ignore)
        w, s = row_weights(y, row, kept & (y >= 0) & (y < classes), kept, weight_ptr, sample_ptr, WEIGHT, SAMPLE)
        total += tl.where(kept, w * s, 0.0)
    return tl.sum(total, 0)


@triton.jit
def shared_total(
    y_ptr, weight_ptr, sample_ptr, parts_ptr, counter_ptr, rows, classes, ignore, WEIGHT: tl.constexpr, SAMPLE: tl.constexpr
):  # fmt: skip
    """`weight_total` of all rows, in every program: the first SHARES programs add up one part each, and all wait for them.

    A program that has waited too long adds up all parts itself, since it may be blocking the others.
    """
    program, at = tl.program_id(0), tl.arange(0, SHARES)
    number = tl.minimum(tl.num_programs(0), SHARES)
    step = tl.cdiv(rows, number)
    if program < number:
        stop = tl.minimum((program + 1) * step, rows)
        own = weight_total(y_ptr, weight_ptr, sample_ptr, program * step, stop, classes, ignore, WEIGHT, SAMPLE, 1024)
        tl.store(parts_ptr + 3 * MOST + program, own)
        tl.debug_barrier()
        tl.atomic_add(counter_ptr + READY, 1, sem="acq_rel")
    ready = tl.atomic_add(counter_ptr + READY, 0, sem="acq_rel")
    asked = 0
    while (ready < number) & (asked < PATIENCE):
        ready = tl.atomic_add(counter_ptr + READY, 0, sem="acq_rel")
        asked += 1
    parts = tl.zeros((SHARES,), tl.float32)
    if ready >= number:
        parts = tl.load(parts_ptr + 3 * MOST + at, mask=at < number, other=0.0, cache_modifier=".cg")
    else:
        for part in range(number):
            stop = tl.minimum((part + 1) * step, rows)
            one = weight_total(y_ptr, weight_ptr, sample_ptr, part * step, stop, classes, ignore, WEIGHT, SAMPLE, 1024)
            parts = tl.where(at == part, one, parts)
    return tl.sum(parts, 0)


@triton.jit
def fold_more(z, cols, y, top, total, spread, best, STATS: tl.constexpr, EXACT: tl.constexpr):
    """`fold` of `mohs.margin._triton`, with the sums for entropy and prediction: Σ e (z − top), and the class of the top.

    EXACT: exponentials with more digits than float32 has, and their sum in float64.
    """
    others = tl.where(cols[None, :] == y[:, None], -INF, z)
    if STATS:
        here, place = tl.max(others, 1, return_indices=True)
        best = tl.where(here > top, tl.min(cols, 0) + place, best)
    else:
        here = tl.max(others, 1)
    higher = tl.maximum(top, here)
    base = tl.where(higher == -INF, 0.0, higher)
    if EXACT:
        e, e_rest = long_exp(others, -base[:, None])
        shrink, shrink_rest = long_exp(top, -base)
    else:
        e, shrink = tl.exp(others - base[:, None]), tl.exp(top - base)
    if STATS:
        moved = tl.where(top == -INF, 0.0, top - base)
        below = tl.where(e == 0.0, 0.0, e * (others - base[:, None]))
        spread = shrink * (spread + moved * total) + tl.sum(below, 1)
    if EXACT:
        total *= shrink.to(tl.float64) + shrink_rest
        total += tl.sum(e.to(tl.float64), 1) + tl.sum(e_rest, 1)
    else:
        total = total * shrink + tl.sum(e, 1)
    return higher, total, spread, best


@triton.jit
def tilt(z, cols, own, w, classes):
    """Σ_k w_k (z_k − z_y) of a block."""
    inside = (cols < classes)[None, :]
    return tl.sum(tl.where(inside & (w[None, :] != 0.0), w[None, :] * (z - own[:, None]), 0.0), 1)


@triton.jit
def class_weights(weight_ptr, cols, classes, WEIGHT: tl.constexpr):
    """The class weights of a block of classes; 0 beyond the classes."""
    w = tl.where(cols < classes, 1.0, 0.0)
    if WEIGHT:
        w = tl.load(weight_ptr + cols, mask=cols < classes, other=0.0).to(tl.float32)
    return w


@triton.jit(do_not_specialize=["rows", "ignore"])
def loss_kernel(
    z_ptr, y_ptr, weight_ptr, sample_ptr, target_ptr, denominator_ptr, level_ptr,
    value_ptr, sum_ptr, counter_ptr, factor_ptr, pull_ptr, top_ptr, total_ptr, m_ptr, gap_ptr, entropy_ptr, best_ptr, grad_ptr,
    rows, inner, stride_n, stride_k, stride_d, grad_n, grad_k, grad_d, ignore, smoothing, shift, a, b, c, d,
    classes: tl.constexpr, WIDTH: tl.constexpr, CURVE: tl.constexpr,
    WEIGHT: tl.constexpr, SAMPLE: tl.constexpr, SMOOTH: tl.constexpr, TARGET: tl.constexpr,
    MEAN: tl.constexpr, COUNT: tl.constexpr, SHARED: tl.constexpr, SUM: tl.constexpr, NORMAL: tl.constexpr, TURNS: tl.constexpr,
    LEVEL: tl.constexpr,
    GRAD: tl.constexpr, PULL: tl.constexpr, SAVE: tl.constexpr, STATS: tl.constexpr,
    TILE: tl.constexpr, BLOCK: tl.constexpr, LOOP: tl.constexpr,
):  # fmt: skip
    """Tiles of rows: one per program, or with TURNS several, one after another.

    MEAN: divide by the denominator, which with COUNT each program adds up itself, and with SHARED some for all. SUM: write the
    sum of the values instead of each. NORMAL: the same for Gradient Rescaling, with its normalization, a factor that ∂z and ∂L/∂m
    lack and that is written separately. LEVEL: the first parameter of the curve is `level`. GRAD: write ∂z, which may overwrite
    z.
    PULL: write the row's ∂L/∂m; SAVE: write top and total. TARGET: the label's logit is `target` instead of z_y, and its
    gradient is `pull`, so that ∂z_y = 0; otherwise it is z_y − shift. STATS: write margin, gap to the largest other logit,
    entropy and most likely class, all of the unmodified logits, without target and shift.
    """
    if WIDTH:
        stride_n = WIDTH
        grad_n = WIDTH
    share = 1.0
    if MEAN:
        if COUNT:
            share = weight_total(y_ptr, weight_ptr, sample_ptr, 0, rows, classes, ignore, WEIGHT, SAMPLE, 1024)
        elif SHARED:
            share = shared_total(
                y_ptr, weight_ptr, sample_ptr, value_ptr, counter_ptr, rows, classes, ignore, WEIGHT, SAMPLE
            )  # fmt: skip
        else:
            share = tl.load(denominator_ptr)
    if LEVEL:
        a = tl.load(level_ptr)
    if TURNS:
        value = 0.0
        for tile in range(tl.program_id(0), tl.cdiv(rows, TILE), tl.num_programs(0)):
            value += loss_tile(
                tile, share, z_ptr, y_ptr, weight_ptr, sample_ptr, target_ptr, value_ptr, sum_ptr, counter_ptr, factor_ptr,
                pull_ptr, top_ptr, total_ptr, m_ptr, gap_ptr, entropy_ptr, best_ptr, grad_ptr,
                rows, inner, stride_n, stride_k, stride_d, grad_n, grad_k, grad_d, ignore, smoothing, shift, a, b, c, d,
                classes, CURVE, WEIGHT, SAMPLE, SMOOTH, TARGET, MEAN, SUM, NORMAL, TURNS, LEVEL, GRAD, PULL, SAVE, STATS,
                TILE, BLOCK, LOOP,
            )  # fmt: skip
        add_up(value, value_ptr, sum_ptr, counter_ptr)
    else:
        loss_tile(
            tl.program_id(0), share,
            z_ptr, y_ptr, weight_ptr, sample_ptr, target_ptr, value_ptr, sum_ptr, counter_ptr, factor_ptr,
            pull_ptr, top_ptr, total_ptr, m_ptr, gap_ptr, entropy_ptr, best_ptr, grad_ptr,
            rows, inner, stride_n, stride_k, stride_d, grad_n, grad_k, grad_d, ignore, smoothing, shift, a, b, c, d,
            classes, CURVE, WEIGHT, SAMPLE, SMOOTH, TARGET, MEAN, SUM, NORMAL, TURNS, LEVEL, GRAD, PULL, SAVE, STATS,
            TILE, BLOCK, LOOP,
        )  # fmt: skip


@triton.jit
def loss_tile(
    tile, share,
    z_ptr, y_ptr, weight_ptr, sample_ptr, target_ptr, value_ptr, sum_ptr, counter_ptr, factor_ptr,
    pull_ptr, top_ptr, total_ptr, m_ptr, gap_ptr, entropy_ptr, best_ptr, grad_ptr,
    rows, inner, stride_n, stride_k, stride_d, grad_n, grad_k, grad_d, ignore, smoothing, shift, a, b, c, d,
    classes: tl.constexpr, CURVE: tl.constexpr,
    WEIGHT: tl.constexpr, SAMPLE: tl.constexpr, SMOOTH: tl.constexpr, TARGET: tl.constexpr,
    MEAN: tl.constexpr, SUM: tl.constexpr, NORMAL: tl.constexpr, TURNS: tl.constexpr, LEVEL: tl.constexpr,
    GRAD: tl.constexpr, PULL: tl.constexpr, SAVE: tl.constexpr, STATS: tl.constexpr,
    TILE: tl.constexpr, BLOCK: tl.constexpr, LOOP: tl.constexpr,
):  # fmt: skip
    """One tile of rows of `loss_kernel`; returns the sum of the values."""
    row = tile * TILE + tl.arange(0, TILE)
    live = row < rows
    y = tl.load(y_ptr + row, mask=live, other=ignore).to(tl.int64)
    kept = live & (y != ignore)
    known = kept & (y >= 0) & (y < classes)
    w_own, s = row_weights(y, row, known, kept, weight_ptr, sample_ptr, WEIGHT, SAMPLE)
    if MEAN:
        s = s / share
    start = offsets(row, inner, stride_n, stride_d)
    own = label_logit(z_ptr, start, y, kept, classes, stride_k, tl.float32)
    top = tl.full((TILE,), -INF, tl.float32)
    total = tl.zeros((TILE,), tl.float64 if LEVEL else tl.float32)
    spread = tl.zeros((TILE,), tl.float32)
    lean = tl.zeros((TILE,), tl.float32)
    best = tl.zeros((TILE,), tl.int32)
    weights = 0.0
    if LOOP:
        for first in range(0, classes, BLOCK):
            cols = first + tl.arange(0, BLOCK)
            z = load(z_ptr, start, cols, kept, classes, stride_k, tl.float32)
            top, total, spread, best = fold_more(z, cols, y, top, total, spread, best, STATS, LEVEL)
            if SMOOTH:
                w = class_weights(weight_ptr, cols, classes, WEIGHT)
                weights += tl.sum(w, 0)
                lean += tilt(z, cols, own, w, classes)
    else:
        cols = tl.arange(0, BLOCK)
        z = load(z_ptr, start, cols, kept, classes, stride_k, tl.float32)
        top, total, spread, best = fold_more(z, cols, y, top, total, spread, best, STATS, LEVEL)
        if SMOOTH:
            w = class_weights(weight_ptr, cols, classes, WEIGHT)
            weights = tl.sum(w, 0)
            lean = tilt(z, cols, own, w, classes)
    if LEVEL:
        long_total = total
        total = total.to(tl.float32)
    if STATS:
        m, base = margin_of(own, top, total)
        ce, rest, p, n = parts(m)
        inner_entropy = tl.log(total) - spread / total
        mixed = tl.where(p == 0.0, 0.0, p * ce) + tl.where(n == 0.0, 0.0, n * (rest + inner_entropy))
        tl.store(m_ptr + row, tl.where(kept, m, float("nan")), mask=live)
        tl.store(gap_ptr + row, tl.where(kept, own - top, float("nan")), mask=live)
        tl.store(entropy_ptr + row, tl.where(kept, mixed, float("nan")), mask=live)
        tl.store(best_ptr + row, tl.where(own > top, y.to(tl.int32), best), mask=live)
    if TARGET:
        own = tl.where(own == own, tl.load(target_ptr + row, mask=kept, other=0.0).to(tl.float32), own)
    else:
        own = own - shift
    m, base = margin_of(own, top, total)
    if LEVEL:
        m, c = long_margin(own, base, total, long_total)
    value, slope = curve(m, a, b, c, d, CURVE, LEVEL)
    each = smoothing / classes
    if SMOOTH:
        factor = (1.0 - smoothing) * w_own + each * weights
        value = tl.where(value == INF, INF, factor * value - each * lean)
        slope = factor * slope
        extra = s * each * weights
    else:
        value = w_own * value
        slope = w_own * slope
        extra = tl.zeros((TILE,), tl.float32)
    pull = s * slope
    value = tl.where(kept, s * value, 0.0 * s)
    one = tl.sum(tl.where(live, value, 0.0), 0)
    if not SUM:
        tl.store(value_ptr + row, value, mask=live)
    elif not TURNS:
        if NORMAL:
            ce, _, _, n = parts(m)
            weight = tl.sum(tl.where(kept, rescaling_weight(ce, n, a, b, c), 0.0), 0)
            count = tl.sum(kept.to(tl.float32), 0)
            add_up_normalized(one, weight, count, value_ptr, sum_ptr, factor_ptr, counter_ptr)
        else:
            add_up(one, value_ptr, sum_ptr, counter_ptr)
    if PULL:
        tl.store(pull_ptr + row, tl.where(kept, pull, 0.0), mask=live)
    if SAVE:
        tl.store(top_ptr + row, base, mask=live)
        tl.store(total_ptr + row, total, mask=live)
    if GRAD:
        at_label = pull + extra
        if TARGET:
            at_label = tl.zeros((TILE,), tl.float32)
        scale = -pull / tl.where(total == 0.0, 1.0, total)
        even = (-s * each)[:, None]
        out = grad_ptr + offsets(row, inner, grad_n, grad_d)
        if LOOP:
            for first in range(0, classes, BLOCK):
                cols = first + tl.arange(0, BLOCK)
                z = load(z_ptr, start, cols, kept, classes, stride_k, tl.float32)
                if SMOOTH:
                    w = class_weights(weight_ptr, cols, classes, WEIGHT)
                    store_gradient(out, z, cols, y, base, at_label, scale, even * w[None, :], live, kept, classes, grad_k)
                else:
                    store_gradient(out, z, cols, y, base, at_label, scale, 0.0, live, kept, classes, grad_k)
        else:
            if SMOOTH:
                w = class_weights(weight_ptr, cols, classes, WEIGHT)
                store_gradient(out, z, cols, y, base, at_label, scale, even * w[None, :], live, kept, classes, grad_k)
            else:
                store_gradient(out, z, cols, y, base, at_label, scale, 0.0, live, kept, classes, grad_k)
    return one


@triton.jit
def add_up_normalized(value, weight, count, parts_ptr, sum_ptr, factor_ptr, counter_ptr):
    """`add_up` of the values, times N/Σ weight over the N rows that count, which is written too. For at most MOST programs."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    group, at = program // GROUP, tl.arange(0, GROUP)
    size = tl.minimum(programs - group * GROUP, GROUP)
    sums_ptr = parts_ptr + 3 * MOST + SHARES
    tl.store(parts_ptr + program, value)
    tl.store(parts_ptr + MOST + program, weight)
    tl.store(parts_ptr + 2 * MOST + program, count)
    if is_last(counter_ptr + 1 + group, size):
        for number in tl.static_range(3):
            own = tl.load(parts_ptr + number * MOST + group * GROUP + at, mask=at < size, other=0.0, cache_modifier=".cg")
            tl.store(sums_ptr + number * GROUP + group, tl.sum(own, 0))
        groups = tl.cdiv(programs, GROUP)
        if is_last(counter_ptr, groups):
            values = tl.load(sums_ptr + at, mask=at < groups, other=0.0, cache_modifier=".cg")
            weights = tl.load(sums_ptr + GROUP + at, mask=at < groups, other=0.0, cache_modifier=".cg")
            counts = tl.load(sums_ptr + 2 * GROUP + at, mask=at < groups, other=0.0, cache_modifier=".cg")
            whole, rows = tl.sum(weights, 0), tl.sum(counts, 0)
            whole = tl.where(whole < 1.1754943508222875e-38, 1.1754943508222875e-38, whole)
            factor = tl.where(rows == 0.0, 1.0, rows / whole)
            tl.store(factor_ptr, factor)
            tl.store(sum_ptr, factor * tl.sum(values, 0))
            tl.store(counter_ptr + READY, 0)
