"""Where the noise is made: keys, the AES key stream, and the exact samplers on top of it."""

from fastdp.randomness.key import Key
from fastdp.randomness.sampler import discrete_laplace, geometric

__all__ = ["Key", "discrete_laplace", "geometric"]
