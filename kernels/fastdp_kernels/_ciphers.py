"""ChaCha20 in LLVM's instructions, which Numba compiles half a second faster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

if TYPE_CHECKING:

    def chacha_rounds(
        k0: np.uint64, k1: np.uint64, k2: np.uint64, k3: np.uint64, counter: np.uint64, nonce: np.uint64
    ) -> tuple[np.uint64, ...]:
        """64 bytes of ChaCha20."""

else:
    #: "expand 32-byte k", and the places of the quarter rounds of two rounds: columns, then diagonals.
    _CONSTANTS = np.frombuffer(b"expand 32-byte k", "<u4").tolist()
    _QUARTERS = [(i, i + 4, i + 8, i + 12) for i in range(4)] + [
        (i, (i + 1) % 4 + 4, (i + 2) % 4 + 8, (i + 3) % 4 + 12) for i in range(4)
    ]
    _DOUBLE_ROUNDS = 10

    def _rotated(builder: Any, x: Any, left: int) -> Any:
        upper, lower = (ir.Constant(x.type, bits) for bits in (left, x.type.width - left))
        return builder.or_(builder.shl(x, upper), builder.lshr(x, lower))

    def _generate_chacha(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        half, whole = ir.IntType(32), ir.IntType(64)
        width = ir.Constant(whole, 32)
        begin = [ir.Constant(half, number) for number in _CONSTANTS]
        for word in arguments:
            begin += [builder.trunc(word, half), builder.trunc(builder.lshr(word, width), half)]
        places = [cgutils.alloca_once_value(builder, each) for each in begin]
        with cgutils.for_range(builder, ir.Constant(whole, _DOUBLE_ROUNDS)):
            x = [builder.load(place) for place in places]
            for a, b, c, d in _QUARTERS:
                for first, second in ((16, 12), (8, 7)):
                    x[a] = builder.add(x[a], x[b])
                    x[d] = _rotated(builder, builder.xor(x[d], x[a]), first)
                    x[c] = builder.add(x[c], x[d])
                    x[b] = _rotated(builder, builder.xor(x[b], x[c]), second)
            for place, value in zip(places, x, strict=True):
                builder.store(value, place)
        ends = [builder.add(builder.load(place), each) for place, each in zip(places, begin, strict=True)]
        sums = [builder.zext(each, whole) for each in ends]
        words = [builder.or_(sums[i], builder.shl(sums[i + 1], width)) for i in range(0, 16, 2)]
        return cgutils.pack_array(builder, words)

    @intrinsic
    def chacha_rounds(_typing: Any, k0: Any, k1: Any, k2: Any, k3: Any, counter: Any, nonce: Any) -> Any:
        del k0, k1, k2, k3, counter, nonce
        return types.UniTuple(types.uint64, 8)(*[types.uint64] * 6), _generate_chacha
