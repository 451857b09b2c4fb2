"""AES-256 (FIPS 197) of a few blocks under many keys."""

from __future__ import annotations

import numpy as np

from fastdp_kernels._ciphers import aes256_block
from fastdp_kernels._jit import kernel


@kernel
def encrypt_under(keys: np.ndarray, own: np.ndarray, blocks: np.ndarray, out: np.ndarray) -> None:
    """Encrypt the blocks uint64[m, 2] under each key, uint64[n, 4]: uint64[n, m, 2], all little-endian.

    The bits of `own`, uint64[n], change the second halves of a key's blocks.
    """
    for i in range(keys.shape[0]):
        for j in range(blocks.shape[0]):
            key, second = keys[i], blocks[j, 1] ^ own[i]
            out[i, j, 0], out[i, j, 1] = aes256_block(key[0], key[1], key[2], key[3], blocks[j, 0], second)
