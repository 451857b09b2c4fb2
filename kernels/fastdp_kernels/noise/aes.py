"""AES-256 (FIPS 197) under many keys, where the processor has its instructions (``HAS_AES``)."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir
from llvmlite.binding import initialize_native_asmparser
from numba import types
from numba.extending import intrinsic

from fastdp_kernels._caching import processor_has
from fastdp_kernels._jit import kernel

#: Processors with AVX write the instructions as these kernels do.
HAS_AES = platform.machine() in {"x86_64", "AMD64"} and processor_has("aes", "avx")

if TYPE_CHECKING:

    def encrypt(
        k0: np.uint64, k1: np.uint64, k2: np.uint64, k3: np.uint64, low: np.uint64, high: np.uint64
    ) -> tuple[np.uint64, np.uint64]:
        """One block of 16 bytes under a key of 32, as little-endian words."""

else:
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
    def encrypt(_typing: Any, _k0: Any, _k1: Any, _k2: Any, _k3: Any, _low: Any, _high: Any) -> Any:
        """In the processor's instructions."""

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


@kernel
def encrypt_under(keys: np.ndarray, blocks: np.ndarray, out: np.ndarray) -> None:
    """Encrypt the blocks uint64[m, 2] under each key, uint64[n, 4]: uint64[n, m, 2], all little-endian."""
    for i in range(keys.shape[0]):
        for j in range(blocks.shape[0]):
            own = keys[i]
            out[i, j, 0], out[i, j, 1] = encrypt(own[0], own[1], own[2], own[3], blocks[j, 0], blocks[j, 1])
