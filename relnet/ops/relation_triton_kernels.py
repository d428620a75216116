"""The Triton kernels behind `relation_triton.py`: a sum over pairs and its gradient; and the tiles they are tried with.

A program takes ROWS rows and goes over the columns that they see, COLS at a time, in registers. Rows are targets and columns sources, but
where the gradient of the sources is taken: there it is the other way round. A row sees the columns first <= c < end. Of the columns,
split k of a program's row takes [k, k + 1) * split_length; the partial sums lie one behind the other, to be added in that order. Nothing is
added to by two programs.

A row of D channels is a tuple of one or two parts whose widths are powers of 2: 192 channels are 128 and 64, not 256.
"""

# Kernels are written in Triton's language, whose tuples grow in loops that are unrolled: not what a checker of Python knows.
# pyrefly: ignore-errors

import functools

import triton
import triton.language as tl

INTERPRETED = triton.knobs.runtime.interpret

LOG2_E = tl.constexpr(1.4426950408889634)
SMALLEST_NORMAL = tl.constexpr(1.1754943508222875e-38)
LARGEST = tl.constexpr(3.4028234663852886e38)
# Adding it leaves the nearest integer in the low bits of a float, for floats below 2^22.
ROUNDER = tl.constexpr(12582912.0)


@triton.constexpr_function
def parts(d: int) -> tuple[tuple[int, int], ...]:
    """Return (first channel, width) of the parts of a row of d channels: one, or two where that leaves fewer lanes idle."""
    whole = max(16, triton.next_power_of_2(d))
    wide = whole // 2
    rest = max(16, triton.next_power_of_2(max(1, d - wide)))
    return ((0, wide), (wide, rest)) if wide + rest < whole else ((0, whole),)


@triton.constexpr_function
def _num_parts(d):
    return len(parts(d))


@triton.constexpr_function
def _first(d, k):
    return parts(d)[k][0]


@triton.constexpr_function
def _width(d, k):
    return parts(d)[k][1]


@triton.jit
def _load(pointer, at, num, D: tl.constexpr):
    """Rows `at` of a (num, D) matrix; 0 beyond its edges."""
    row = ()
    for k in tl.static_range(_num_parts(D)):
        h = _first(D, k) + tl.arange(0, _width(D, k))
        inside = (at[:, None] < num) & (h[None, :] < D)
        row = row + (tl.load(pointer + at[:, None] * D + h[None, :], mask=inside, other=0.0),)
    return row


@triton.jit
def _store(pointer, row, at, num, D: tl.constexpr):
    for k in tl.static_range(_num_parts(D)):
        h = _first(D, k) + tl.arange(0, _width(D, k))
        tl.store(pointer + at[:, None] * D + h[None, :], row[k], mask=(at[:, None] < num) & (h[None, :] < D))


@triton.jit
def _zeros(ROWS: tl.constexpr, D: tl.constexpr):
    row = ()
    for k in tl.static_range(_num_parts(D)):
        row = row + (tl.zeros((ROWS, _width(D, k)), tl.float32),)
    return row


@triton.jit
def _channel_sum(x, y):
    """Sum x y over the channels of each pair."""
    if len(x) == 1:
        product = x[0] * y[0]
    else:
        # The wide part is folded onto the narrow one within each lane: one reduction across lanes, not two.
        SHAPE: tl.constexpr = x[1].shape
        FOLDED: tl.constexpr = (SHAPE[0], SHAPE[1], x[0].shape[2] // SHAPE[2], SHAPE[2])
        product = tl.sum(tl.reshape(x[0] * y[0], FOLDED), 2) + x[1] * y[1]
    return tl.sum(product, 2)


@triton.jit
def _scale(x, D: tl.constexpr):
    """s = (|x|^2 / D)^-1/2 of each pair by the direct sum of squares, 0 where there is no variance or too much; NaN stays NaN."""
    v = _channel_sum(x, x) * (1.0 / D)
    # The approximate root, and a Newton step to the last bit.
    s = tl.rsqrt(v)
    half = 0.5 * s
    s += half * (1.0 - (v * s) * s)
    # "Out of range ? 0 : s", never "in range ? s : 0". Below the smallest normal number rsqrt may give inf.
    return tl.where((v < SMALLEST_NORMAL) | (v > LARGEST), 0.0, s)


@triton.jit
def _exp2(t, ON_FMA: tl.constexpr):
    """2^t on the special-function unit; or, for |t| < 126, by Cody and Waite on the FMA units, a polynomial of degree 6, error 1.4e-7."""
    if ON_FMA:
        shifted = t + ROUNDER
        rest = t - (shifted - ROUNDER)
        value = 1.3399931e-3 + rest * 1.5345812e-4
        value = 5.5503288e-2 + rest * (9.618489e-3 + rest * value)
        value = 0.6931472 + rest * (0.24022647 + rest * value)
        value = 1.0 + rest * value
        power = ((shifted.to(tl.int32, bitcast=True) << 23) + 0x3F800000).to(tl.float32, bitcast=True)
        return power * value
    else:
        return tl.exp2(t)


@triton.jit
def _exp(z):
    return tl.exp2(z * LOG2_E)


@triton.jit
def _normal_cdf(z):
    return 0.5 * (1.0 + tl.erf(z * 0.7071067811865476))


@triton.jit
def _scaled(x, s, NORMED: tl.constexpr):
    if NORMED:
        return s[:, :, None] * x
    else:
        return x


@triton.jit
def _value(x, s, ACTIVATION: tl.constexpr, NORMED: tl.constexpr, EXP_ON_FMA: tl.constexpr):
    """psi(s x). Comparisons are turned so that NaN comes through."""
    if ACTIVATION == "exp":
        return _exp_of_pair(x, s, NORMED, EXP_ON_FMA)
    elif ACTIVATION == "relu":
        z = _scaled(x, s, NORMED)
        return tl.where(z <= 0, 0.0, z)
    elif ACTIVATION == "elu":
        z = _scaled(x, s, NORMED)
        # Near 0 exp(z) - 1 would cancel: there its Taylor series, error 2e-8 at -1/2.
        near = 1.3888889e-3 + z * 1.9841270e-4
        near = 0.16666667 + z * (4.1666667e-2 + z * (8.3333333e-3 + z * near))
        near = z * (1.0 + z * (0.5 + z * near))
        return tl.where(z > 0, z, tl.where(z > -0.5, near, _exp(z) - 1.0))
    else:
        z = _scaled(x, s, NORMED)
        return z * _normal_cdf(z)


@triton.jit
def _derivative(x, s, ACTIVATION: tl.constexpr, NORMED: tl.constexpr, EXP_ON_FMA: tl.constexpr):
    """psi'(s x)."""
    if ACTIVATION == "exp":
        return _exp_of_pair(x, s, NORMED, EXP_ON_FMA)
    elif ACTIVATION == "relu":
        return tl.where(_scaled(x, s, NORMED) <= 0, 0.0, 1.0)
    elif ACTIVATION == "elu":
        z = _scaled(x, s, NORMED)
        return tl.where(z > 0, 1.0, _exp(z))
    else:
        z = _scaled(x, s, NORMED)
        return _normal_cdf(z) + z * (_exp(-0.5 * z * z) * 0.3989422804014327)


@triton.jit
def _exp_of_pair(x, s, NORMED: tl.constexpr, EXP_ON_FMA: tl.constexpr):
    if NORMED:
        return _exp2((s * LOG2_E)[:, :, None] * x, EXP_ON_FMA)
    else:
        return tl.exp2(x * LOG2_E)


@triton.jit
def _columns_seen(first, end, split_length):
    """The range of columns that some row of this program sees, cut to this program's split."""
    low = tl.program_id(1) * split_length
    return tl.maximum(tl.min(first, 0), low), tl.minimum(tl.max(end, 0), low + split_length)


@triton.jit(do_not_specialize=["num_matrices", "num_rows", "num_cols", "split_length", "size"])
def sum_over_pairs(
    row_pointer,
    col_pointer,
    first_pointer,
    end_pointer,
    out_pointer,
    num_matrices,
    num_rows,
    num_cols,
    split_length,
    size,
    D: tl.constexpr,
    ACTIVATION: tl.constexpr,
    NORMED: tl.constexpr,
    EXP_ON_FMA: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """out[split, matrix, row] = sum over the columns that the row sees of psi(s x), x = row + column."""
    # The last rows see most: they come first, so that none of them is left for the end.
    matrix = (tl.program_id(0) % num_matrices).to(tl.int64)
    rows = (tl.cdiv(num_rows, ROWS) - 1 - tl.program_id(0) // num_matrices) * ROWS + tl.arange(0, ROWS)
    first = tl.load(first_pointer + matrix * num_rows + rows, mask=rows < num_rows, other=num_cols)
    end = tl.load(end_pointer + matrix * num_rows + rows, mask=rows < num_rows, other=0)
    row = _load(row_pointer + matrix * num_rows * D, rows, num_rows, D)
    col_pointer += matrix * num_cols * D
    total = _zeros(ROWS, D)
    low, high = _columns_seen(first, end, split_length)
    for start in range(low, high, COLS):
        cols = start + tl.arange(0, COLS)
        seen = (cols[None, :] >= first[:, None]) & (cols[None, :] < end[:, None]) & (cols[None, :] < high)
        col = _load(col_pointer, cols, num_cols, D)
        x = ()
        for k in tl.static_range(len(row)):
            x = x + (row[k][:, None, :] + col[k][None, :, :],)
        s = _scale(x, D) if NORMED else tl.zeros((ROWS, COLS), tl.float32)
        sums = ()
        for k in tl.static_range(len(row)):
            value = _value(x[k], s, ACTIVATION, NORMED, EXP_ON_FMA)
            sums = sums + (total[k] + tl.sum(tl.where(seen[:, :, None], value, 0.0), 1),)
        total = sums
    out_pointer += (tl.program_id(1).to(tl.int64) * num_matrices + matrix) * num_rows * D
    _store(out_pointer, total, rows, num_rows, D)


@triton.jit(do_not_specialize=["num_matrices", "num_rows", "num_cols", "split_length", "size"])
def gradient_over_pairs(
    row_pointer,
    col_pointer,
    grad_pointer,
    first_pointer,
    end_pointer,
    out_pointer,
    num_matrices,
    num_rows,
    num_cols,
    split_length,
    size,
    OF_TARGETS: tl.constexpr,
    D: tl.constexpr,
    ACTIVATION: tl.constexpr,
    NORMED: tl.constexpr,
    EXP_ON_FMA: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """out[split, matrix, row] = sum over the columns of s (u - (u.x s^2 / D) x), u = g psi'(s x), g a number a target and channel."""
    matrix = (tl.program_id(0) % num_matrices).to(tl.int64)
    block = tl.program_id(0) // num_matrices
    # The longest rows first: the last targets, the first sources.
    rows = (tl.cdiv(num_rows, ROWS) - 1 - block if OF_TARGETS else block) * ROWS + tl.arange(0, ROWS)
    first = tl.load(first_pointer + matrix * num_rows + rows, mask=rows < num_rows, other=num_cols)
    end = tl.load(end_pointer + matrix * num_rows + rows, mask=rows < num_rows, other=0)
    row = _load(row_pointer + matrix * num_rows * D, rows, num_rows, D)
    col_pointer += matrix * num_cols * D
    grad_pointer += matrix * (num_rows if OF_TARGETS else num_cols) * D
    if OF_TARGETS:
        grad_of_rows = _load(grad_pointer, rows, num_rows, D)
    total = _zeros(ROWS, D)
    low, high = _columns_seen(first, end, split_length)
    for start in range(low, high, COLS):
        cols = start + tl.arange(0, COLS)
        seen = (cols[None, :] >= first[:, None]) & (cols[None, :] < end[:, None]) & (cols[None, :] < high)
        col = _load(col_pointer, cols, num_cols, D)
        if not OF_TARGETS:
            grad_of_cols = _load(grad_pointer, cols, num_cols, D)
        x = ()
        for k in tl.static_range(len(row)):
            x = x + (row[k][:, None, :] + col[k][None, :, :],)
        s = _scale(x, D) if NORMED else tl.zeros((ROWS, COLS), tl.float32)
        u = ()
        for k in tl.static_range(len(row)):
            g = grad_of_rows[k][:, None, :] if OF_TARGETS else grad_of_cols[k][None, :, :]
            u = u + (g * _derivative(x[k], s, ACTIVATION, NORMED, EXP_ON_FMA),)
        if NORMED:
            # c s^2 / D as (c s) s / D: s^3 would overflow from a variance of 2e-26.
            weight = _channel_sum(u, x) * s * s * (1.0 / D)
        sums = ()
        for k in tl.static_range(len(row)):
            dx = s[:, :, None] * (u[k] - weight[:, :, None] * x[k]) if NORMED else u[k]
            sums = sums + (total[k] + tl.sum(tl.where(seen[:, :, None], dx, 0.0), 1),)
        total = sums
    out_pointer += (tl.program_id(1).to(tl.int64) * num_matrices + matrix) * num_rows * D
    _store(out_pointer, total, rows, num_rows, D)


def tiles(d: int, values_a_lane: int) -> list[triton.Config]:
    """Return the tiles to try: ROWS by COLS pairs, so many that a temporary of all their channels takes about `values_a_lane` registers."""
    width = sum(width for _, width in parts(d))
    # One warp as long as it can hold a row: sums over channels then stay within it. A wide row is shared by several.
    num_warps = min(32, max(1, triton.next_power_of_2(width) // 512))
    pairs = max(1, values_a_lane * 32 * num_warps // width)
    pairs = 1 << (pairs.bit_length() - 1)
    return [
        triton.Config({"ROWS": rows, "COLS": min(32, pairs // rows)}, num_warps=num_warps)
        for rows in (1, 2, 4)
        if rows <= pairs
    ]


# Large tiles, as it is the number of operations that counts there.
_INTERPRETED_TILE = {"ROWS": 16, "COLS": 32}


def _measure(call, quantiles):
    return triton.testing.do_bench(call, warmup=5, rep=20, quantiles=quantiles)


# Registers that a temporary may take: of 255, for the two or three that live at a time.
VALUES_A_LANE = {sum_over_pairs: 48, gradient_over_pairs: 32}


@functools.cache
def _tuned(kernel: triton.JITFunction, d: int) -> triton.runtime.Autotuner:
    """Return the kernel with its tile chosen by measurement, once for each `size`; the choices are kept on disk by Triton."""
    key = ["size", "ACTIVATION", "NORMED"] + ["OF_TARGETS"] * ("OF_TARGETS" in kernel.arg_names)
    return triton.autotune(tiles(d, VALUES_A_LANE[kernel]), key=key, do_bench=_measure, cache_results=True)(kernel)


def launch(kernel: triton.JITFunction, num_programs, *arguments, D: int, **choices) -> None:
    """Run a kernel with the tile that suits; num_programs(ROWS) -> grid."""
    if INTERPRETED:
        kernel[num_programs](*arguments, D=D, **choices, **_INTERPRETED_TILE)
    else:
        _tuned(kernel, D)[num_programs](*arguments, D=D, **choices, enable_fp_fusion=True)
