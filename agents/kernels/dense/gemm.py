"""Matrix products on one core, from tiles of the result that stay in registers over the whole sum.

numba's vectoriser keeps each partial sum in memory and reaches 60 to 125 GFLOP/s on the core that this was written on,
MKL 110. Here the innermost loops are emitted as LLVM vectors. A tile of 8 x 32 results takes 16 AVX-512 registers; per
term of the sum it costs 10 loads and 16 fused multiply-adds, enough of them in flight to hide their latency. That is
200 to 220 GFLOP/s at 64 x 64 x 64 and 260 from 128 x 128 x 256 on; the core's peak is about 280 (64 FLOP per cycle).

Every result is one sum in ascending order, whatever tile it lies in: it depends on no size but the length of the sum.
"""

from __future__ import annotations

from typing import Any, Tuple

import llvmlite.binding
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from envolve.agents.kernels import JIT

# Lanes of a vector and rows of a tile, which is two vectors wide: what fits into 32 registers, or into 16.
WIDTH, ROWS = (16, 8) if llvmlite.binding.get_host_cpu_features().get("avx512f") else (8, 6)
COLUMNS = 2 * WIDTH
BLOCK = 16  # rows and columns of a block that is transposed in registers

_F4, _I32, _I64 = ir.FloatType(), ir.IntType(32), ir.IntType(64)
_VECTOR, _BLOCK_ROW = ir.VectorType(_F4, WIDTH), ir.VectorType(_F4, BLOCK)


def _splat(b: Any, value: Any, width: int) -> Any:
    """A vector with ``value`` in every lane."""
    empty = ir.Constant(ir.VectorType(value.type, width), ir.Undefined)
    lanes = ir.Constant(ir.VectorType(_I32, width), [_I32(0)] * width)
    return b.shuffle_vector(b.insert_element(empty, value, _I32(0)), empty, lanes)


def _at(b: Any, base: Any, index: Any, vector: Any) -> Any:
    """Pointer to the vector that begins at base[index]."""
    return b.bitcast(b.gep(base, [index]), vector.as_pointer())


def _store(b: Any, value: Any, pointer: Any, live: Any) -> None:
    """Store the first ``live`` lanes of a vector."""
    width, pointer = value.type.count, b.bitcast(pointer, value.type.as_pointer())
    lanes = ir.Constant(ir.VectorType(_I64, width), [_I64(i) for i in range(width)])
    mask = b.icmp_signed("<", lanes, _splat(b, live, width))
    signature = ir.FunctionType(ir.VoidType(), [value.type, pointer.type, _I32, mask.type])
    store = cgutils.get_or_insert_function(b.module, signature, f"llvm.masked.store.v{width}f32.p0")
    b.call(store, [value, pointer, _I32(4), mask])


def _data(context: Any, b: Any, kind: Any, array: Any) -> Any:
    """Pointer to the first element of an array."""
    if kind.layout != "C" or kind.dtype != types.float32:
        raise TypeError(f"a contiguous float32 array is needed, not {kind}")
    return context.make_array(kind)(context, b, array).data


def _emit_tile(b: Any, rows: int, vectors: int, a: Tuple, x: Tuple, c: Tuple, R: Any, bias: Tuple, live: Any) -> None:
    """c[j, v] = bias[j] + sum over r < R of a[j, r] x[r, v]. a, x, c, bias: pointer to the first, and strides."""
    (a, a_row, a_sum), (x, x_sum), (c, c_row) = a, x, c
    fma = cgutils.get_or_insert_function(b.module, ir.FunctionType(_VECTOR, [_VECTOR] * 3), f"llvm.fmuladd.v{WIDTH}f32")
    sums = [[cgutils.alloca_once(b, _VECTOR) for _ in range(vectors)] for _ in range(rows)]  # LLVM: registers
    for j in range(rows):
        start = _splat(b, b.load(b.gep(bias[0], [b.mul(bias[1], _I64(j))])), WIDTH)
        for v in range(vectors):
            b.store(start, sums[j][v])
    with cgutils.for_range(b, R) as loop:
        at = b.mul(loop.index, x_sum)
        columns = [b.load(_at(b, x, b.add(at, _I64(WIDTH * v)), _VECTOR), align=4) for v in range(vectors)]
        at = b.mul(loop.index, a_sum)
        for j in range(rows):
            factor = _splat(b, b.load(b.gep(a, [b.add(at, b.mul(a_row, _I64(j)))])), WIDTH)
            for v in range(vectors):
                b.store(b.call(fma, [factor, columns[v], b.load(sums[j][v])]), sums[j][v])
    for j in range(rows):
        for v in range(vectors):
            to = _at(b, c, b.add(b.mul(c_row, _I64(j)), _I64(WIDTH * v)), _VECTOR)
            if v < vectors - 1:
                b.store(b.load(sums[j][v]), to, align=4)
            else:
                _store(b, b.load(sums[j][v]), to, b.sub(live, _I64(WIDTH * v)))


@intrinsic
def _tile(typing, A, a, a_row, a_sum, bias, X, x, x_sum, C, c, c_row, R, rows, columns):
    """One tile of ``product``: rows <= ROWS, columns <= COLUMNS. Each size has its own code."""
    kinds = [
        k if isinstance(k, types.Array) else types.intp
        for k in (A, a, a_row, a_sum, bias, X, x, x_sum, C, c, c_row, R, rows, columns)
    ]

    def emit(context: Any, b: Any, signature: Any, arguments: Any) -> Any:
        A, a, a_row, a_sum, bias, X, x, x_sum, C, c, c_row, R, rows, columns = arguments
        A, X, C = (_data(context, b, kinds[i], array) for i, array in ((0, A), (5, X), (8, C)))
        none = b.icmp_signed("<", bias, _I64(0))
        zero = cgutils.alloca_once_value(b, _F4(0.0))
        start = b.select(none, zero, b.gep(A, [bias])), b.select(none, _I64(0), _I64(1))
        A, X, C = b.gep(A, [a]), b.gep(X, [x]), b.gep(C, [c])
        end = b.append_basic_block("end")
        wide = b.zext(b.icmp_signed(">", columns, _I64(WIDTH)), _I64)
        choice = b.switch(b.add(b.mul(rows, _I64(2)), wide), end)
        for j in range(1, ROWS + 1):
            for v in (1, 2):
                block = b.append_basic_block(f"tile{j}x{v}")
                choice.add_case(_I64(2 * j + v - 1), block)
                b.position_at_end(block)
                _emit_tile(b, j, v, (A, a_row, a_sum), (X, x_sum), (C, c_row), R, start, columns)
                b.branch(end)
        b.position_at_end(end)
        return context.get_dummy_value()

    return types.void(*kinds), emit


@intrinsic
def out_of_line(typing):
    """Forbid LLVM to inline the function that calls this: copies of large loops are what compiling would take long."""

    def emit(context: Any, b: Any, signature: Any, arguments: Any) -> Any:
        b.function.attributes.add("noinline")
        return context.get_dummy_value()

    return types.void(), emit


@intrinsic
def in_line(typing):
    """Have LLVM inline the function that calls this. numba's own inlining types and translates each copy anew."""

    def emit(context: Any, b: Any, signature: Any, arguments: Any) -> Any:
        b.function.attributes.add("alwaysinline")
        return context.get_dummy_value()

    return types.void(), emit


@njit(**JIT)
def product(A, a, a_row, a_sum, bias, X, x_sum, C, c, c_row, R, rows, columns):
    """C[j, i] = b[j] + sum over r < R of A[j, r] X[r, i], for j < rows and i < columns.

    All arrays are contiguous float32 of any shape, read as flat memory: A[j, r] lies at a + a_row j + a_sum r of A,
    b[j] at bias + j of A too (bias < 0: no bias), X[r, i] at x_sum r + i and C[j, i] at c + c_row j + i. X is read up
    to the next multiple of WIDTH columns.
    """
    out_of_line()
    for i in range(0, columns, COLUMNS):  # a strip of X, which stays in the cache
        width = min(COLUMNS, columns - i)
        for j in range(0, rows, ROWS):
            height = min(ROWS, rows - j)
            first = bias + j if bias >= 0 else -1
            _tile(A, a + j * a_row, a_row, a_sum, first, X, i, x_sum, C, c + j * c_row + i, c_row, R, height, width)


@intrinsic
def _transpose_panel(typing, X, x, x_row, rows, L, T, t, t_row, S, s):
    """``transpose`` for up to BLOCK rows."""
    kinds = [k if isinstance(k, types.Array) else types.intp for k in (X, x, x_row, rows, L, T, t, t_row, S, s)]

    def emit(context: Any, b: Any, signature: Any, arguments: Any) -> Any:
        X, x, x_row, rows, L, T, t, t_row, S, s = arguments
        X, T, S = (
            b.gep(_data(context, b, kinds[i], array), [first]) for i, array, first in ((0, X, x), (5, T, t), (8, S, s))
        )
        total = cgutils.alloca_once(b, _BLOCK_ROW)
        b.store(ir.Constant(_BLOCK_ROW, [_F4(0.0)] * BLOCK), total)
        last = b.sub(rows, _I64(1))
        places = []  # rows that do not exist repeat the last one
        for j in range(BLOCK):
            row = b.select(b.icmp_signed("<", _I64(j), last), _I64(j), last)
            places.append(b.mul(row, x_row))
        with cgutils.for_range(b, b.sdiv(L, _I64(BLOCK))) as loop:
            at = b.mul(loop.index, _I64(BLOCK))
            block = [b.load(_at(b, X, b.add(place, at), _BLOCK_ROW), align=4) for place in places]
            step = BLOCK // 2
            while step:  # swap the off-diagonal quarters of ever smaller squares
                low = [i if not i & step else BLOCK + i - step for i in range(BLOCK)]
                high = [i + step if not i & step else BLOCK + i for i in range(BLOCK)]
                for i in range(BLOCK):
                    if not i & step:
                        u, v = block[i], block[i + step]
                        block[i], block[i + step] = (
                            b.shuffle_vector(u, v, ir.Constant(ir.VectorType(_I32, BLOCK), [_I32(k) for k in lanes]))
                            for lanes in (low, high)
                        )
                step //= 2
            for i, row in enumerate(block):
                b.store(row, _at(b, T, b.mul(b.add(at, _I64(i)), t_row), _BLOCK_ROW), align=4)
            for n in (8, 4, 2, 1):
                block = [b.fadd(block[i], block[i + n]) for i in range(n)]
            b.store(b.fadd(b.load(total), block[0]), total)
        _store(b, b.load(total), S, rows)
        return context.get_dummy_value()

    return types.void(*kinds), emit


@njit(**JIT)
def transpose(X, rows, L, T, S, s):
    """T[i, j] = X[j, i] and S[s + j] = sum over i of X[j, i], for j < rows; X: [rows, L], L a multiple of BLOCK.

    T is read as flat memory with rows of ``rows`` rounded up to a multiple of BLOCK; what fills them up is arbitrary.
    """
    out_of_line()
    t_row = (rows + BLOCK - 1) // BLOCK * BLOCK
    for j in range(0, rows, BLOCK):
        _transpose_panel(X, j * L, L, min(BLOCK, rows - j), L, T, j, t_row, S, s + j)
