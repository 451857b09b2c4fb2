"""Ciphers and a digest in LLVM's instructions, which also takes Numba half a second less."""

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
#: BLAKE2b's constants, and how many texts :func:`compress` takes at a time.
IV = np.array(
    [
        *(0x6A09E667F3BCC908, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B, 0xA54FF53A5F1D36F1),
        *(0x510E527FADE682D1, 0x9B05688C2B3E6C1F, 0x1F83D9ABFB41BD6B, 0x5BE0CD19137E2179),
    ],
    np.uint64,
)
LANES = 8

if TYPE_CHECKING:

    def chacha_rounds(
        k0: np.uint64, k1: np.uint64, k2: np.uint64, k3: np.uint64, counter: np.uint64, nonce: np.uint64
    ) -> tuple[np.uint64, ...]:
        """64 bytes of ChaCha20."""

    def compress(h: np.ndarray, m: np.ndarray, ends: np.ndarray) -> None:
        """Compress a block of each text: uint64[8, 8], [16, 8]; [2, 8]: bytes so far, and all ones at the last."""

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
        kind = getattr(x.type, "element", x.type)
        count = getattr(x.type, "count", None)
        upper, lower = (ir.Constant(x.type, [bits] * count if count else bits) for bits in (left, kind.width - left))
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

    _SIGMA = (
        (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
        (14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3),
        (11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4),
        (7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8),
        (9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13),
        (2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9),
        (12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11),
        (13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10),
        (6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5),
        (10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0),
    )

    @intrinsic
    def compress(_typing: Any, _h: Any, _m: Any, _ends: Any) -> Any:
        rows = types.Array(types.uint64, 2, "C")

        def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            row = ir.VectorType(ir.IntType(64), LANES)

            def place(array: int, index: int) -> Any:
                data = context.make_array(rows)(context, builder, arguments[array]).data
                return builder.gep(builder.bitcast(data, row.as_pointer()), [ir.IntType(64)(index)])

            def load(array: int, index: int) -> Any:
                return builder.load(place(array, index), align=8)

            h = [load(0, i) for i in range(8)]
            m = [load(1, i) for i in range(16)]
            v = h + [ir.Constant(row, [word] * LANES) for word in IV.tolist()]
            for i in range(2):
                v[12 + 2 * i] = builder.xor(v[12 + 2 * i], load(2, i))
            for order in (*_SIGMA, *_SIGMA[:2]):
                words = iter(order)
                for a, b, c, d in _QUARTERS:
                    for first, second in ((32, 24), (16, 63)):
                        v[a] = builder.add(builder.add(v[a], v[b]), m[next(words)])
                        v[d] = _rotated(builder, builder.xor(v[d], v[a]), 64 - first)
                        v[c] = builder.add(v[c], v[d])
                        v[b] = _rotated(builder, builder.xor(v[b], v[c]), 64 - second)
            for i in range(8):
                builder.store(builder.xor(h[i], builder.xor(v[i], v[i + 8])), place(0, i), align=8)
            return context.get_dummy_value()

        return types.none(rows, rows, rows), generate

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
