"""AES-256 (FIPS 197) of a few blocks under many keys."""

from __future__ import annotations

import numpy as np

from fastdp_kernels._ciphers import aes256_block
from fastdp_kernels._jit import kernel


@kernel
def encrypt_under(keys: np.ndarray, blocks: np.ndarray, out: np.ndarray) -> None:
    """Encrypt the blocks uint64[m, 2] under each key, uint64[n, 4]: uint64[n, m, 2], all little-endian."""
    for i in range(keys.shape[0]):
        for j in range(blocks.shape[0]):
            own = keys[i]
            out[i, j, 0], out[i, j, 1] = aes256_block(own[0], own[1], own[2], own[3], blocks[j, 0], blocks[j, 1])
