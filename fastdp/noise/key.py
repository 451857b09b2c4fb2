"""Keys: 256 bits from which a publisher's noise follows."""

from __future__ import annotations

import binascii
import contextlib
import hashlib
import os
import secrets
import stat
import threading
from bisect import bisect_right
from collections.abc import Iterator
from contextvars import ContextVar
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from fastdp import validation
from fastdp.errors import ParameterError, StateError
from fastdp.noise import canonical
from fastdp.noise.canonical import NOISE_FORMAT, Component, Encodable, encode, identity, part_name, rule_of
from fastdp.units import normal_name
from fastdp.validation import refusal

if TYPE_CHECKING:
    from fastdp.noise.given_noise import GivenNoise


# A check that a publisher draws no word twice, for tests and with ``FASTDP_DEBUG=1`` in the environment.
#
# Equal words on different values reveal their difference, so an index that wraps or stands still breaks the
# guarantee without any other sign.  The check follows the key of one composition through all keys derived of it.
# Another object with the same key has a check of its own: it may repeat a release on purpose.

ENABLED = os.environ.get("FASTDP_DEBUG") == "1"
#: Secret and stream number; then purpose, level, number and refinement, or the chain key that noise began from.
Where = tuple[object, ...]


class DrawnTwiceError(AssertionError):
    """A word of noise was drawn twice."""


class DrawnWords:
    """Records drawn words, without those of failed calls."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: Disjoint ranges [start, stop) of each stream of words, ascending.
        self._runs: dict[Where, list[tuple[int, int]]] = {}
        self._calls: list[tuple[Where, int, int]] = []

    @property
    def mark(self) -> int:
        return len(self._calls)

    def add(self, where: Where, start: int, stop: int) -> None:
        """Record a range; :class:`DrawnTwiceError` if one overlaps it."""
        if stop <= start:
            return
        repeats = _repeats.get()
        if repeats is not None:
            # Among themselves repeated draws differ; those that are no repetition count as any other.
            repeats._add(where, start, stop)
            with contextlib.suppress(DrawnTwiceError):
                self._add(where, start, stop)
            return
        self._add(where, start, stop)

    def _add(self, where: Where, start: int, stop: int) -> None:
        with self._lock:
            runs = self._runs.setdefault(where, [])
            at = bisect_right(runs, (start, stop))
            before, behind = runs[at - 1 : at] if at else [], runs[at : at + 1]
            if (before and before[0][1] > start) or (behind and behind[0][0] < stop):
                # The secret is the first entry: it stays out of the message.
                raise DrawnTwiceError(f"words {start} to {stop} of {where[1:]} were drawn before")
            joins_before, joins_behind = bool(before) and before[0][1] == start, bool(behind) and behind[0][0] == stop
            joined = before[0][0] if joins_before else start, behind[0][1] if joins_behind else stop
            runs[at - joins_before : at + joins_behind] = [joined]
            self._calls.append((where, start, stop))

    def keep(self) -> None:
        with self._lock:
            self._calls.clear()

    def forget(self, mark: int) -> None:
        with self._lock:
            for where, start, stop in reversed(self._calls[mark:]):
                runs = self._runs[where]
                at = bisect_right(runs, (start, float("inf"))) - 1
                begin, end = runs[at]
                runs[at : at + 1] = [run for run in ((begin, start), (stop, end)) if run[0] < run[1]]
            del self._calls[mark:]


#: Words drawn within :func:`repeating`.
_repeats: ContextVar[DrawnWords | None] = ContextVar("repeats", default=None)


@contextlib.contextmanager
def repeating() -> Iterator[None]:
    """Allow draws in the block to repeat earlier ones, not each other."""
    token = _repeats.set(DrawnWords())
    try:
        yield
    finally:
        _repeats.reset(token)


KEY_BYTES = 32
#: One secret serves so many numbered streams, besides the one without a number.
MAX_STREAMS = 2**32 - 1


def is_secret(candidate: object) -> bool:
    """True for 32 bytes."""
    return isinstance(candidate, (bytes, bytearray)) and len(candidate) == KEY_BYTES


class Binding(IntEnum):
    """Scope of a key, a number in state files."""

    #: A user's secret, for any number of compositions.
    ROOT = 0
    #: One composition.
    COMPOSITION = 1


class Key:
    """Holds a 256-bit secret, from :meth:`random`, :meth:`from_seed` or :meth:`from_bytes`.

    Attributes
    ----------
    simulated : bool
        True if the key came from a seed.
    member : int
        Stream number + 1, or 0.
    binding : Binding
        Scope of the key.
    drawn : DrawnWords or None
        Words drawn, if checked.
    family : bytes
        Digest shared by the streams of a secret and composition.
    given : GivenNoise or None
        Table that replaces draws.

    Examples
    --------
    >>> import fastdp
    >>> store = bytes(range(32))  # 32 random bytes of your own; not these
    >>> key = fastdp.Key.from_bytes(store).of_stream("meter 17")
    >>> publisher = fastdp.Adaptive(0.5, bound=100.0, threshold=20.0, key=key)
    >>> publisher.guarantee.simulated
    False
    """

    # No properties: a step of noise asks a dozen times.
    __slots__ = ("_secret", "binding", "drawn", "family", "member", "simulated")
    _secret: bytes
    binding: Binding
    drawn: DrawnWords | None
    family: bytes
    member: int
    simulated: bool
    given: ClassVar[GivenNoise | None] = None

    def __init__(
        self,
        secret: bytes,
        *,
        simulated: bool,
        member: int = 0,
        binding: Binding = Binding.ROOT,
        drawn: DrawnWords | None = None,
        family: bytes = b"",
    ) -> None:
        if not is_secret(secret):
            raise ParameterError(
                f"key: expected {KEY_BYTES} bytes or a Key (what was given is not shown, it is secret)"
            )
        if drawn is None and ENABLED and binding is Binding.COMPOSITION:
            drawn = DrawnWords()
        put = object.__setattr__
        put(self, "_secret", bytes(secret))
        put(self, "simulated", simulated)
        put(self, "member", validation.integer("member", member, 0, MAX_STREAMS) if member else 0)
        put(self, "binding", binding)
        put(self, "drawn", drawn)
        put(self, "family", family)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{name}: a Key does not change; expected another one, such as from Key.derive")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{name}: a Key does not change")

    def again(self) -> Key:
        """Key of a repeated simulation, whose draws are checked separately."""
        return self._derived(self._secret, drawn=None, family=self.family)

    @classmethod
    def random(cls) -> Key:
        """Fresh key from the operating system."""
        return cls(secrets.token_bytes(KEY_BYTES), simulated=False)

    @classmethod
    def from_seed(cls, seed: int | str) -> Key:
        """Key of a simulation, from an integer or text."""
        if isinstance(seed, str):
            try:
                material = b"text:" + seed.encode()
            except UnicodeEncodeError:
                raise refusal("seed", seed, "a text that UTF-8 can encode") from None
        else:
            material = b"number:%d" % validation.integer("seed", seed, 0)
        return cls(hashlib.sha256(b"fastdp seed 1:" + material).digest(), simulated=True)

    @classmethod
    def from_bytes(cls, secret: bytes) -> Key:
        """Key from 32 random bytes that you keep, for releases that can be repeated.

        Two streams, or an altered copy, under one key and equal parameters reveal their difference: name them
        (:meth:`of_stream`).
        """
        return cls(secret, simulated=False)

    @classmethod
    def choose(cls, seed: int | str | None, key: Key | bytes | None) -> Key:
        """Key from `seed` or `key`; ParameterError for both."""
        if seed is not None and key is not None:
            raise refusal("seed", seed, "either seed (simulation) or key (release), not both")
        if seed is not None:
            return cls.from_seed(seed)
        if key is None:
            # Fresh for this composition alone: there is nothing to separate.
            return cls(secrets.token_bytes(KEY_BYTES), simulated=False, binding=Binding.COMPOSITION)
        return key if isinstance(key, Key) else cls.from_bytes(key)

    def of_stream(self, stream: int | str) -> Key:
        """Key of one of many streams, with independent noise.

        `stream` is a name, or a number from 0 to 2^32 - 2 as in :func:`fastdp.release_many`.
        """
        family = _public_digest(self._secret, b"streams")
        if isinstance(stream, str):
            named = self.within("stream", stream)
            return named._derived(named._secret, family=family)
        if self.member:
            raise refusal("stream", stream, "a key that has no stream number yet")
        member = validation.integer("stream", stream, 0, MAX_STREAMS - 1) + 1
        return self._derived(self._secret, member=member, family=family)

    def bind(self, mechanism: object) -> Key:
        """Key of one composition and stream number, from class, rule and all parameters of `mechanism`.

        A bound key is returned unchanged.
        """
        return self if self.binding is not Binding.ROOT else self.bound(self.composition(mechanism))

    def composition(self, mechanism: object) -> bytes:
        """Encode a mechanism and its parameters for :meth:`bound`."""
        parameters = {
            name: value if type(value) in canonical.PLAIN else self._identity(name, value)
            for name, value in canonical.parameters_of(mechanism).items()
        }
        return encode([NOISE_FORMAT, Component(part_name(mechanism), rule_of(mechanism), parameters)])

    def bound(self, composition: bytes) -> Key:
        """Derive the key of :meth:`bind` from an encoding."""
        family = self.family and _public_digest(self.family, composition)
        return self._derived(self._digest(composition), binding=Binding.COMPOSITION, family=family)

    def _identity(self, name: str, value: object) -> Encodable:
        try:
            return identity(value)
        except TypeError:
            if self.simulated:
                return Component(part_name(value), rule_of(value), None)
        raise ParameterError(
            f"{name} is a {type(value).__name__} whose parameters cannot be read: expected a dataclass or a method "
            "identity(), because with a key of your own all parameters join the noise key (or key=None)"
        )

    def within(self, *labels: str | float | bytes) -> Key:
        """Derive an independent key with the same stream number."""
        return self._derived(self._digest(encode(labels)), labels)

    def _digest(self, message: bytes) -> bytes:
        return bound_digest(self._secret, message)

    def _derived(self, secret: bytes, labels: tuple[object, ...] = (), **changes: Any) -> Key:
        if not changes:
            return Key(secret, simulated=self.simulated, member=self.member, binding=self.binding, drawn=self.drawn)
        fields = {"member": self.member, "binding": self.binding, "drawn": self.drawn, **changes}
        return Key(secret, simulated=self.simulated, **fields)

    def derive(self, *labels: str | int) -> Key:
        """Derive an independent key for a named purpose; a number and its text are one label."""
        texts = [str(label).encode() for label in labels]
        message = b"".join([len(text).to_bytes(8, "big") + text for text in texts])
        if self.member:
            # No text is as long as the first eight bytes then say.
            message = bytes([255] * 8) + self.member.to_bytes(8, "big") + message
        digest = hashlib.blake2b(message, digest_size=KEY_BYTES, key=self._secret, person=b"fastdp derive 1").digest()
        return self._derived(digest, labels, member=0)

    def fingerprint(self) -> str:
        """32 hexadecimal digits for a ledger, which reveal nothing else about the key.

        Those of a stream follow the family's digits and a colon.
        """
        digits = _public_digest(self._secret, b"fingerprint" + self.member.to_bytes(8, "big")).hex()
        return f"{self.family.hex()}:{digits}" if self.family else digits

    def reveal(self) -> bytes:
        """The secret; keep it out of logs.  Numbered streams share it."""
        return self._secret

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Key):
            return NotImplemented
        same = (self.simulated, self.member, self.binding) == (other.simulated, other.member, other.binding)
        return secrets.compare_digest(self._secret, other._secret) and same

    def __hash__(self) -> int:
        return hash((self._secret, self.member))

    def __repr__(self) -> str:
        number = f", stream {self.member - 1}" if self.member else ""
        return f"Key(<from a seed>{number})" if self.simulated else f"Key(<secret>{number})"

    def __reduce__(self) -> NoReturn:
        raise StateError("a Key cannot be pickled: pickles are neither encrypted nor owner-only")


def bound_digest(secret: bytes, message: bytes) -> bytes:
    """Secret derived for an encoded message."""
    return hashlib.blake2b(message, digest_size=KEY_BYTES, key=secret, person=b"fastdp bind 1").digest()


def stream_key(secret: Key, stream: str | None) -> Key:
    """Key of a named stream; `secret` without a name."""
    return secret if stream is None else secret.of_stream(normal_name("stream", stream))


def _public_digest(secret: bytes, message: bytes) -> bytes:
    return hashlib.blake2b(message, digest_size=16, key=secret, person=b"fastdp print 1").digest()


# Key files, readable by the owner alone.

OTHERS = stat.S_IRWXG | stat.S_IRWXO


def read_key(path: Path, option: str = "--key-file") -> Key:
    """Read an owner-only file of 32 raw bytes or 64 hexadecimal digits; else ParameterError."""
    with path.open("rb") as file:
        # The open file is asked, not its name, so that it cannot be swapped between check and use.
        mode = os.fstat(file.fileno()).st_mode
        if os.name == "posix" and mode & OTHERS:
            raise ParameterError(
                f"{option} {path}: group or others have access (mode {stat.S_IMODE(mode):04o}); "
                f"expected an owner-only file (chmod 600 {path})"
            )
        content = file.read(4 * KEY_BYTES)
    if len(content) != KEY_BYTES:
        # Unlike bytes.fromhex it accepts no blanks between digits.
        with contextlib.suppress(ValueError):
            content = binascii.unhexlify(content.strip())
    if len(content) != KEY_BYTES:
        raise ParameterError(
            f"{option} {path}: expected exactly {KEY_BYTES} raw bytes or {2 * KEY_BYTES} hexadecimal digits "
            "(the content is not shown: it is secret)"
        )
    return Key.from_bytes(content)


def read_ledger_key(path: Path | None) -> Key | None:
    """Read the file of ``--ledger-key-file``, if any."""
    return None if path is None else read_key(path, "--ledger-key-file")
