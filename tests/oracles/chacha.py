"""ChaCha20's block function, and noise bound to the prefix of sums, in plain Python.

Source: RFC 8439, section 2.3, with a counter and a nonce of 64 bits each (Bernstein 2008); the rule that binds noise
is in ``docs/noise.md``.  Words are 64 bits, little-endian.
"""

from __future__ import annotations

MASK = 2**32 - 1
ROUNDS = [(0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)]
ROUNDS += [(0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)]


def halves(words):
    """Words of 64 bits as twice as many of 32."""
    return [half for word in words for half in (word & MASK, word >> 32)]


def block(key, counter, nonce):
    """Eight words from a key of four, and a counter and nonce of one word each."""
    constants = [int.from_bytes(b"expand 32-byte k"[i : i + 4], "little") for i in range(0, 16, 4)]
    start = constants + halves(key) + halves([counter, nonce])
    x = list(start)
    for _ in range(10):
        for a, b, c, d in ROUNDS:
            for left, right, target, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
                x[left] = (x[left] + x[right]) & MASK
                mixed = x[target] ^ x[left]
                x[target] = ((mixed << turn) | (mixed >> (32 - turn))) & MASK
    out = [(one + two) & MASK for one, two in zip(x, start, strict=True)]
    return [out[i] | out[i + 1] << 32 for i in range(0, 16, 2)]


class Bound:
    """Noise of one sum after the other, each a function of all sums up to its own.

    ``draw(word, further)`` makes a draw of random words; ``further(k)`` is the k-th further one.
    """

    def __init__(self, chain, draw, index=0):
        self.chain, self.draw, self.index = list(chain), draw, index

    def output(self, total, number):
        """The output of this number for the next sum: half chain key, half random words."""
        return block(self.chain, self.index * 256 + number, total % 2**64)

    def __call__(self, total):
        first = self.output(total, 0)
        noise = self.draw(first[4], lambda k: self.output(total, k // 4)[4 + k % 4])
        self.chain, self.index = first[:4], self.index + 1
        return noise
