"""Keys: 256 bits from which all noise of a publisher follows.

A default key comes from the operating system and is for real releases.  A key from a seed is for
simulation: whoever knows the seed can subtract the noise, so guarantees then say ``simulated``.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import NoReturn

from fastdp import validation
from fastdp.errors import ParameterError, StateError

KEY_BYTES = 32
#: One secret serves so many numbered streams, besides the one without a number.
MOST_STREAMS = 2**32 - 1


def is_secret(candidate: object) -> bool:
    """Whether this is 32 bytes."""
    return isinstance(candidate, (bytes, bytearray)) and len(candidate) == KEY_BYTES


class Key:
    """A 256-bit secret.

    Use :meth:`random`, :meth:`from_seed` or :meth:`from_bytes`.
    """

    __slots__ = ("_member", "_secret", "_simulated")

    def __init__(self, secret: bytes, *, simulated: bool, member: int = 0) -> None:
        if not is_secret(secret):
            raise ParameterError(
                f"key: expected {KEY_BYTES} bytes or a Key (what was given is not shown, it is secret)"
            )
        self._secret = bytes(secret)
        self._simulated = simulated
        self._member = validation.integer("member", member, 0, MOST_STREAMS)

    @property
    def member(self) -> int:
        """Which of the secret's streams this is the key of: 0 for the one without a number, else its number + 1."""
        return self._member

    @property
    def simulated(self) -> bool:
        """Whether the key came from a seed."""
        return self._simulated

    @classmethod
    def random(cls) -> Key:
        """A fresh key from the operating system."""
        return cls(secrets.token_bytes(KEY_BYTES), simulated=False)

    @classmethod
    def from_seed(cls, seed: int | str) -> Key:
        """A key for simulation, derived from a whole number or a text by SHA-256."""
        if isinstance(seed, str):
            try:
                material = b"text:" + seed.encode()
            except UnicodeEncodeError:
                raise ParameterError(f"seed = {seed!r}: expected a text that UTF-8 can encode") from None
        else:
            material = b"number:%d" % validation.integer("seed", seed, 0)
        return cls(hashlib.sha256(b"fastdp seed 1:" + material).digest(), simulated=True)

    @classmethod
    def from_bytes(cls, secret: bytes) -> Key:
        """A key that the user keeps (32 bytes of full entropy), for releases that survive a restart.

        Never use one key for two streams, nor for a stream and an altered copy of it: equal noise
        on different values reveals their difference.
        """
        return cls(secret, simulated=False)

    @classmethod
    def choose(cls, seed: int | str | None, key: Key | bytes | None) -> Key:
        """The key that a publisher's ``seed`` and ``key`` arguments ask for."""
        if seed is not None and key is not None:
            raise ParameterError(f"seed = {seed!r}: expected either seed (simulation) or key (release), not both")
        if seed is not None:
            return cls.from_seed(seed)
        if key is None:
            return cls.random()
        return key if isinstance(key, Key) else cls.from_bytes(key)

    def of_stream(self, number: int) -> Key:
        """The key of one of many streams under the same secret, whose noise is independent of all the others'.

        What :func:`fastdp.release_many` releases for the stream with this id is what a publisher with this key
        releases.  Numbered streams read counter blocks of their own under one AES key, so thousands of them
        are drawn in one call of the cipher (``docs/batch.md``).

        Parameters
        ----------
        number : int
            From 0 to 2^32 - 2.
        """
        if self._member:
            raise ParameterError(f"number = {validation.shown(number)}: expected a key that has no stream number yet")
        member = validation.integer("number", number, 0, MOST_STREAMS - 1) + 1
        return Key(self._secret, simulated=self._simulated, member=member)

    def derive(self, *labels: str | int) -> Key:
        """An independent key for a named purpose (keyed BLAKE2b)."""
        message = b"".join(len(text).to_bytes(8, "big") + text for text in (str(part).encode() for part in labels))
        if self._member:
            # No text is as long as the first eight bytes then say.
            message = bytes([255] * 8) + self._member.to_bytes(8, "big") + message
        digest = hashlib.blake2b(message, digest_size=KEY_BYTES, key=self._secret, person=b"fastdp derive 1").digest()
        return Key(digest, simulated=self.simulated)

    def reveal(self) -> bytes:
        """The secret itself, for the cipher and for an encrypted state file; keep it out of logs.

        All numbered streams have the same: whoever builds noise of it must use :attr:`member` too.
        """
        return self._secret

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Key):
            return NotImplemented
        same = self.simulated == other.simulated and self._member == other._member
        return secrets.compare_digest(self._secret, other._secret) and same

    def __hash__(self) -> int:
        return hash((self._secret, self._member))

    def __repr__(self) -> str:
        number = f", stream {self._member - 1}" if self._member else ""
        return f"Key(<from a seed>{number})" if self.simulated else f"Key(<secret>{number})"

    def __reduce__(self) -> NoReturn:
        raise StateError("a Key cannot be pickled: pickles are neither encrypted nor owner-only")
