"""Ciphers in LLVM's instructions, which also takes Numba half a second less."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir
from llvmlite.binding import initialize_native_asmparser
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from fastdp_kernels._caching import processor_has

#: True if :func:`aes256_block` works here: it needs the processor's instructions, as those with AVX write them.
HAS_AES = platform.machine() in {"x86_64", "AMD64"} and processor_has("aes", "avx")

if TYPE_CHECKING:

    def chacha_rounds(
        k0: np.uint64, k1: np.uint64, k2: np.uint64, k3: np.uint64, counter: np.uint64, nonce: np.uint64
    ) -> tuple[np.uint64, ...]:
        """64 bytes of ChaCha20."""

    def aes256_block(
        k0: np.uint64, k1: np.uint64, k2: np.uint64, k3: np.uint64, low: np.uint64, high: np.uint64
    ) -> tuple[np.uint64, np.uint64]:
        """Encrypt one 16-byte block, two little-endian words, by AES-256 under a key of four: two words."""

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

    _HALVES, _WORDS = (ir.VectorType(ir.IntType(bits), 128 // bits) for bits in (64, 32))

    def _instruction(builder: Any, name: str, *operands: Any) -> Any:
        # By name: levels of processors, for which wheels have kernels, do not name these instructions.
        vectors = [each for each in operands if not isinstance(each, int)]
        given = ", ".join([f"$${each}" for each in operands if isinstance(each, int)])
        numbers = ", ".join(f"${i}" for i in range(len(vectors), -1, -1))
        kind, places = ir.FunctionType(_WORDS, [_WORDS] * len(vectors)), ",".join(["=x", *"x" * len(vectors)])
        return builder.asm(kind, f"{name} {given}{', ' if given else ''}{numbers}", places, vectors, False)

    def _shuffled(builder: Any, x: Any, lanes: list[int]) -> Any:
        zeros = ir.Constant(_WORDS, [0] * 4)
        return builder.shuffle_vector(x, zeros, ir.Constant(_WORDS, lanes))

    def _round_keys(builder: Any, first: Any, second: Any) -> list[Any]:
        keys = [first, second]
        for i in range(13):
            old, assisted = keys[-2], _instruction(builder, "vaeskeygenassist", 0 if i % 2 else 1 << i // 2, keys[-1])
            mixed = _shuffled(builder, assisted, [2 if i % 2 else 3] * 4)
            # Each word with all before it; lane 4 is zero.
            for lanes in ([0, 1, 2, 3], [4, 0, 1, 2], [4, 4, 0, 1], [4, 4, 4, 0]):
                mixed = builder.xor(mixed, _shuffled(builder, old, lanes))
            keys.append(mixed)
        return keys

    @intrinsic
    def aes256_block(_typing: Any, _k0: Any, _k1: Any, _k2: Any, _k3: Any, _low: Any, _high: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            def joined(low: Any, high: Any) -> Any:
                pair = ir.Constant(_HALVES, ir.Undefined)
                for place, word in enumerate((low, high)):
                    pair = builder.insert_element(pair, word, ir.IntType(32)(place))
                return builder.bitcast(pair, _WORDS)

            initialize_native_asmparser()
            first, second, state = (joined(*arguments[i : i + 2]) for i in (0, 2, 4))
            begin, *middle, last = _round_keys(builder, first, second)
            state = builder.xor(state, begin)
            for key in middle:
                state = _instruction(builder, "vaesenc", state, key)
            state = builder.bitcast(_instruction(builder, "vaesenclast", state, last), _HALVES)
            words = [builder.extract_element(state, ir.IntType(32)(place)) for place in range(2)]
            return context.make_tuple(builder, signature.return_type, words)

        return types.UniTuple(types.uint64, 2)(*[types.uint64] * 6), generate
