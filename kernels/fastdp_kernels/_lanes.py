"""Sixteen entries at a time in vectors of LLVM, which would unroll a loop of 16 into scalars.

All entries from position ``at`` of a contiguous array on must exist, unchecked.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from fastdp_kernels import _jit

#: Entries of a row, and rows whose sums are made together.
LANES, ROWS = 16, 8
# Adding 1.5 * 2^52 rounds a double in [0, 2^51] to the nearest integer (ties to even) and leaves that
# integer in the low bits: a conversion that every vector unit has.
ROUNDER = 1.5 * 2.0**52
ROUNDER_BITS = 0x4338000000000000
WITHOUT_SIGN = 0x7FFFFFFFFFFFFFFF
EXPONENT_ONE = 1 << 52

if TYPE_CHECKING:

    def sum_row(entries: np.ndarray, at: int) -> np.int64:
        """Sum modulo 2^64 of LANES int64 entries."""

    def sum_step_rows(
        values: np.ndarray, at: int, steps_per_unit: float, top: float, sums: np.ndarray, row: int
    ) -> np.int64:
        """Sum ROWS rows of LANES numbers, clipped to [0, top] steps and rounded; negative if one is not finite."""

    def sum_steps_and_fill(
        values: np.ndarray,
        at: int,
        rows: int,
        steps_per_unit: float,
        top: float,
        out: np.ndarray,
        value: float,
        sums: np.ndarray,
    ) -> np.int64:
        """:func:`sum_step_rows` into ``sums[0]``, plus ROUNDER_BITS a value; sets ``out`` to ``value``."""

    def raise_row(entries: np.ndarray, at: int, share: np.int64, extra: np.int64) -> None:
        """Add ``share`` to LANES int64 entries and 1 to the first ``extra``, modulo 2^64."""

    def fill_row(out: np.ndarray, at: int, value: float, last: float) -> None:
        """Set LANES float64 entries to ``value``, the last to ``last``."""

else:
    _I32, _I64, _F64 = ir.IntType(32), ir.IntType(64), ir.DoubleType()
    _NUMBERS = ir.Constant(ir.VectorType(_I64, LANES), [ir.Constant(_I64, lane) for lane in range(LANES)])
    #: Lanes of two vectors of ROWS whose sums keep the order of rows, from eight vectors down to one.
    _FOLDS = (
        ((0, 8, 2, 10, 4, 12, 6, 14), (1, 9, 3, 11, 5, 13, 7, 15)),
        ((0, 1, 4, 5, 8, 9, 12, 13), (2, 3, 6, 7, 10, 11, 14, 15)),
        ((0, 1, 4, 5, 8, 9, 12, 13), (2, 3, 6, 7, 10, 11, 14, 15)),
    )

    def _place(context: Any, builder: Any, kind: Any, array: Any, at: Any, count: int) -> Any:
        if kind.layout != "C":
            raise TypeError("an array of another layout: expected a C-contiguous one")
        data = context.make_array(kind)(context, builder, array).data
        first = builder.gep(data, [at], inbounds=True)
        return builder.bitcast(first, ir.VectorType(first.type.pointee, count).as_pointer())

    def _load(builder: Any, place: Any) -> Any:
        vector = builder.load(place)
        vector.align = 8
        return vector

    def _store(builder: Any, vector: Any, place: Any) -> None:
        builder.store(vector, place).align = 8

    def _shuffled(builder: Any, x: Any, y: Any, lanes: tuple[int, ...]) -> Any:
        return builder.shuffle_vector(x, y, ir.Constant(ir.VectorType(_I32, len(lanes)), lanes))

    def _spread(builder: Any, value: Any, count: int = LANES) -> Any:
        none = ir.Constant(ir.VectorType(value.type, count), ir.Undefined)
        return _shuffled(builder, builder.insert_element(none, value, _I32(0)), none, (0,) * count)

    def _each(kind: Any, value: float) -> Any:
        return ir.Constant(ir.VectorType(kind, ROWS), [ir.Constant(kind, value)] * ROWS)

    def _flag(builder: Any, values: Any) -> Any:
        if values.type.element == _I64:
            return _each(_I64, 0)
        bits = builder.bitcast(values, ir.VectorType(_I64, ROWS))
        return builder.add(builder.and_(bits, _each(_I64, WITHOUT_SIGN)), _each(_I64, EXPONENT_ONE))

    def _steps(builder: Any, values: Any, per_unit: Any, most: Any) -> Any:
        reals = _jit.rounded(builder, values) if values.type.element == _I64 else values
        nothing, x = _each(_F64, 0.0), builder.fmul(reals, per_unit)
        x = builder.select(builder.fcmp_ordered(">", x, nothing), x, nothing)
        x = builder.select(builder.fcmp_ordered("<", x, most), x, most)
        return builder.bitcast(builder.fadd(x, _each(_F64, ROUNDER)), ir.VectorType(_I64, ROWS))

    def _halves(context: Any, builder: Any, kind: Any, array: Any, at: Any) -> list[Any]:
        begins = [builder.add(at, _I64(ROWS * half)) for half in range(2 * ROWS)]
        return [_load(builder, _place(context, builder, kind, array, begin, ROWS)) for begin in begins]

    def _folded(builder: Any, halves: list[Any]) -> Any:
        vectors = [builder.add(*pair) for pair in zip(halves[::2], halves[1::2], strict=True)]
        for even, odd in _FOLDS:
            pairs = zip(vectors[::2], vectors[1::2], strict=True)
            vectors = [builder.add(_shuffled(builder, x, y, even), _shuffled(builder, x, y, odd)) for x, y in pairs]
        return vectors[0]

    def _reduced(builder: Any, operation: str, vector: Any) -> Any:
        kind = ir.FunctionType(_I64, [vector.type])
        name = f"llvm.vector.reduce.{operation}.v{vector.type.count}i64"
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [vector])

    @intrinsic
    def sum_row(_typing: Any, entries: Any, _at: Any) -> Any:
        """In LLVM's instructions."""

        def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            row = _load(builder, _place(context, builder, entries, *arguments, LANES))
            return _reduced(builder, "add", row)

        return types.int64(entries, types.int64), generate

    @intrinsic
    def sum_step_rows(
        _typing: Any, values: Any, _at: Any, _steps_per_unit: Any, _top: Any, sums: Any, _row: Any
    ) -> Any:
        """In LLVM's instructions."""

        def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            array, at, steps_per_unit, top, out, row = arguments
            per_unit, most = _spread(builder, steps_per_unit, ROWS), _spread(builder, top, ROWS)
            flags, halves = _each(_I64, 0), []
            for half in _halves(context, builder, values, array, at):
                flags = builder.or_(flags, _flag(builder, half))
                halves.append(_steps(builder, half, per_unit, most))
            folded = builder.sub(_folded(builder, halves), _each(_I64, ROUNDER_BITS * LANES % 2**64))
            _store(builder, folded, _place(context, builder, sums, out, row, ROWS))
            return _reduced(builder, "or", flags)

        arguments = (values, types.int64, types.float64, types.float64, sums, types.int64)
        return types.int64(*arguments), generate

    @intrinsic
    def sum_steps_and_fill(
        _typing: Any,
        values: Any,
        _at: Any,
        _rows: Any,
        _steps_per_unit: Any,
        _top: Any,
        out: Any,
        _value: Any,
        sums: Any,
    ) -> Any:
        """In LLVM's instructions."""

        def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            array, at, rows, steps_per_unit, top, published, value, total = arguments
            per_unit, most = _spread(builder, steps_per_unit, ROWS), _spread(builder, top, ROWS)
            filling, zeros = _spread(builder, value, ROWS), _each(_I64, 0)
            # Sums of their own, which do not wait for each other.
            flags, *own = [cgutils.alloca_once_value(builder, zeros) for _ in range(1 + LANES // ROWS)]
            with cgutils.for_range(builder, rows) as row:
                first = builder.add(at, builder.mul(row.index, _I64(LANES)))
                begins = [builder.add(first, _I64(begin)) for begin in range(0, LANES, ROWS)]
                parts = [_load(builder, _place(context, builder, values, array, begin, ROWS)) for begin in begins]
                for begin in begins:
                    _store(builder, filling, _place(context, builder, out, published, begin, ROWS))
                for part, held in zip(parts, own, strict=True):
                    builder.store(builder.or_(builder.load(flags), _flag(builder, part)), flags)
                    builder.store(builder.add(builder.load(held), _steps(builder, part, per_unit, most)), held)
            summed = reduce(builder.add, [builder.load(held) for held in own])
            place = context.make_array(sums)(context, builder, total).data
            builder.store(_reduced(builder, "add", summed), place)
            return _reduced(builder, "or", builder.load(flags))

        places = (values, types.int64, types.int64, types.float64, types.float64, out, types.float64, sums)
        return types.int64(*places), generate

    @intrinsic
    def raise_row(_typing: Any, entries: Any, _at: Any, _share: Any, _extra: Any) -> Any:
        """In LLVM's instructions."""

        def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            array, at, share, extra = arguments
            place = _place(context, builder, entries, array, at, LANES)
            raised = builder.add(_load(builder, place), _spread(builder, share))
            one_more = builder.zext(builder.icmp_signed("<", _NUMBERS, _spread(builder, extra)), raised.type)
            _store(builder, builder.add(raised, one_more), place)
            return context.get_dummy_value()

        return types.none(entries, types.int64, types.int64, types.int64), generate

    @intrinsic
    def fill_row(_typing: Any, out: Any, _at: Any, _value: Any, _last: Any) -> Any:
        """In LLVM's instructions."""

        def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            array, at, value, last = arguments
            row = builder.insert_element(_spread(builder, value), last, _I32(LANES - 1))
            _store(builder, row, _place(context, builder, out, array, at, LANES))
            return context.get_dummy_value()

        return types.none(out, types.int64, types.float64, types.float64), generate
