"""Decorators that compile kernels, and instructions that Numba lacks.

``plus`` and ``minus`` wrap modulo 2^64, where Numba's ``+`` is undefined.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.compiler import Compiler
from numba.core.registry import CPUDispatcher
from numba.extending import intrinsic

from fastdp_kernels._caching import KeptKernel, target_has

F = TypeVar("F", bound=Callable[..., Any])
#: An array of records with named fields, or one of them.
Record: TypeAlias = Any


#: An entry for C, which Numba makes besides that for Python, would have no caller.
_OPTIONS = {"nopython": True, "nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}


class _Kernel(CPUDispatcher):
    def compile(self, signature: Any) -> Any:
        # There is little garbage.
        collects = gc.isenabled()
        gc.disable()
        try:
            return super().compile(signature)
        finally:
            if collects:
                gc.enable()


class _Linked(Compiler):
    """Leaves machine code of a piece to kernels."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)  # type: ignore[no-untyped-call]
        self.state.flags.no_compile = True


class _Piece(CPUDispatcher):
    """Part of kernels; only a test's call compiles an entry for Python."""

    def add_overload(self, compiled: Any) -> None:
        library, key = compiled.library, compiled.fndesc
        library._finalize_final_module = partial(setattr, library, "_finalized", True)
        self.targetctx.insert_user_function(key, key, [library])  # type: ignore[no-untyped-call]
        self.overloads[tuple(compiled.signature.args)] = compiled._replace(entry_point=key)

    @cached_property
    def _alone(self) -> Callable[..., Any]:
        return cast("Callable[..., Any]", numba.njit(nogil=True, error_model="numpy")(self.py_func))

    def __call__(self, *arguments: Any) -> Any:
        return self._alone(*arguments)

    def get_call_template(self, arguments: Any, keywords: Any) -> Any:
        # Once for all integers, not by constant.
        general = tuple(types.unliteral(argument) for argument in arguments)  # type: ignore[no-untyped-call]
        return super().get_call_template(general, keywords)


def kernel(function: F) -> F:
    """Compile an entry point, without the interpreter lock and ``fastmath``, and keep it on disk."""
    dispatcher: Any = _Kernel(function, targetoptions=dict(_OPTIONS))
    dispatcher._cache = KeptKernel(function)
    return cast("F", dispatcher)


def records(fields: list[Any]) -> Any:
    """Type of records with these fields; arrays of one are unpacked four times as fast."""
    return np.dtype((np.record, fields))


def inline(function: F) -> F:
    """Compile a piece that kernels call; LLVM inlines it."""
    options = {**_OPTIONS, "no_cpython_wrapper": True}
    return cast("F", _Piece(function, targetoptions=options, pipeline_class=_Linked))


if TYPE_CHECKING:

    def bits_of(x: float) -> np.int64:
        """IEEE-754 bits of a float64 as an int64."""

    def bits_if_real(number: float | np.int64) -> np.int64:
        """:func:`bits_of` a float64; 0 for an int64."""

    def double_of(bits: np.int64) -> float:
        """The float64 with these IEEE-754 bits."""

    def real_of(number: float | np.int64) -> float:
        """A float64 unchanged; an int64 rounded to the nearest one."""

    def plus(a: np.int64, b: np.int64) -> np.int64:
        """Sum modulo 2^64."""

    def minus(a: np.int64, b: np.int64) -> np.int64:
        """Difference modulo 2^64."""

    def few_zeros(count: int) -> np.ndarray:
        """float64[count] on the stack; ``count`` is a constant."""

else:

    def _reinterpret(target: ir.Type) -> Callable[..., Any]:
        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            return builder.bitcast(arguments[0], target)

        return generate

    @intrinsic
    def bits_of(_typing: Any, _x: Any) -> Any:
        """In LLVM's instructions."""
        return types.int64(types.float64), _reinterpret(ir.IntType(64))

    @intrinsic
    def bits_if_real(_typing: Any, number: Any) -> Any:
        """In LLVM's instructions."""

        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            whole = ir.IntType(64)
            return builder.bitcast(arguments[0], whole) if number == types.float64 else whole(0)

        return types.int64(number), generate

    @intrinsic
    def double_of(_typing: Any, _bits: Any) -> Any:
        """In LLVM's instructions."""
        return types.float64(types.int64), _reinterpret(ir.DoubleType())

    #: True if vectors of int64 have an instruction for it.
    CONVERTS = target_has(("avx512dq",))

    def rounded(builder: Any, number: Any, converts: bool = CONVERTS) -> Any:
        """:func:`real_of` for LLVM's int64, also vectors."""
        count = getattr(number.type, "count", None)
        real: Any = ir.DoubleType() if count is None else ir.VectorType(ir.DoubleType(), count)
        if converts:
            return builder.sitofp(number, real)

        def each(value: float, kind: Any) -> Any:
            return ir.Constant(kind, value if count is None else [ir.Constant(kind.element, value)] * count)

        whole = number.type
        low = builder.or_(builder.and_(number, each(2**32 - 1, whole)), each(0x4330000000000000, whole))
        high = builder.xor(builder.lshr(number, each(32, whole)), each(0x4530000080000000, whole))
        # 2^84 + 2^63 + high 2^32 and 2^52 + low; the difference is exact, so that the sum is rounded once.
        above = builder.fsub(builder.bitcast(high, real), each(2.0**84 + 2.0**63 + 2.0**52, real))
        return builder.fadd(above, builder.bitcast(low, real))

    @intrinsic
    def real_of(_typing: Any, number: Any) -> Any:
        """In LLVM's instructions."""

        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            return arguments[0] if number == types.float64 else rounded(builder, arguments[0])

        return types.float64(number), generate

    def _wrapping(operation: str) -> Callable[..., Any]:
        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            return getattr(builder, operation)(*arguments)

        return generate

    @intrinsic
    def plus(_typing: Any, _a: Any, _b: Any) -> Any:
        """Sum modulo 2^64."""
        return types.int64(types.int64, types.int64), _wrapping("add")

    @intrinsic
    def minus(_typing: Any, _a: Any, _b: Any) -> Any:
        """Difference modulo 2^64."""
        return types.int64(types.int64, types.int64), _wrapping("sub")

    @intrinsic(prefer_literal=True)
    def few_zeros(_typing: Any, count: Any) -> Any:
        """In LLVM's instructions."""
        array, size = types.Array(types.float64, 1, "C"), count.literal_value

        def generate(context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
            whole, bytes_each = ir.IntType(64), 8
            place = cgutils.alloca_once(builder, ir.DoubleType(), size=size)
            cgutils.memset(builder, place, ir.Constant(whole, size * bytes_each), 0)
            built = context.make_array(array)(context, builder)
            shape, strides = ([ir.Constant(whole, number)] for number in (size, bytes_each))
            context.populate_array(
                built, data=place, shape=shape, strides=strides, itemsize=ir.Constant(whole, bytes_each), meminfo=None
            )
            return built._getvalue()

        return array(count), generate
