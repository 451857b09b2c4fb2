"""What a ledger answers: its checked file, the account of it, and what that leaves."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fastdp import validation
from fastdp.errors import ParameterError, StateError
from fastdp.guarantee import Guarantee
from fastdp.ledger import accounting, entry, session
from fastdp.ledger.account import Account, budget, taking
from fastdp.ledger.chain import Prefix
from fastdp.ledger.entry import Entry
from fastdp.ledger.session import Session
from fastdp.ledger.tally import Budget, Region
from fastdp.randomness.key import Key


@dataclass(frozen=True)
class Verification:
    """What :meth:`Ledger.verify` found.

    Attributes
    ----------
    lines : int
        Lines with the right seal.
    head : str
        The last one's seal: keep it elsewhere, and a ledger that lost its last lines no longer holds it.
    torn : int
        Bytes of a last line that is cut off.  If a crash did this nothing was released under it, and otherwise a
        release may be missing; nothing more is recorded before ``Ledger(..., recover=True)``.
    reserved : list of int
        Reservations that nobody has ended; they count as spent.
    """

    lines: int
    head: str
    torn: int
    reserved: list[int]


@dataclass(frozen=True)
class _Memory:
    """Lines that were checked, and what they add up to."""

    prefix: Prefix
    account: Account


class Book:
    """The part of a :class:`~fastdp.ledger.Ledger` that reads."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        limit_epsilon: float | None = None,
        limit_delta: float | None = None,
        key: Key | bytes | None = None,
        create: bool = True,
        recover: bool = False,
    ) -> None:
        self._path = Path(os.path.realpath(validation.path("path", path)))
        self._limit = budget("limit_epsilon", limit_epsilon, "limit_delta", limit_delta)
        self._key = Key.from_bytes(key) if isinstance(key, (bytes, bytearray)) else key
        if self._key is not None and not isinstance(self._key, Key):
            raise ParameterError(f"key: expected 32 bytes, a Key or None, got {type(key).__name__}")
        #: How many lines there were at least, and the seal of the last of these.
        self._seen: tuple[int, bytes] | None = None
        self._memory: deque[_Memory] = deque(maxlen=1)
        if validation.flag("create", create) and not self._path.exists():
            session.create(self._path, self._key)
        give_up = validation.flag("recover", recover)
        with self._opened() as (file, _):
            if give_up:
                file.recover()

    def __repr__(self) -> str:
        return f"Ledger({str(self._path)!r})"

    @contextmanager
    def _opened(
        self, entries: dict[int, Entry] | None = None, *, anew: bool = False
    ) -> Iterator[tuple[Session, Account]]:
        """The file, locked, checked and with all that this object has seen of it; and its account.

        Lines that this object has checked before, and that have not changed in one byte, are not checked again; with
        ``entries``, which all releases are added to, or ``anew`` they are.
        """
        with session.locked(self._path, self._key) as file:
            memory = None if anew or entries is not None else self._recall()
            if memory is not None and not file.begins_with(memory.prefix):
                memory = None
            account = Account() if memory is None else memory.account
            file.read(taking(account, file.name, entries))
            if self._seen is not None and not file.holds(*self._seen):
                raise StateError(
                    f"ledger {file.name} lacks lines that this object has seen: expected the same file, grown (was "
                    "an old copy put back?)"
                )
            # What is appended now is checked by the next call, as what others append.
            try:
                yield file, account
            finally:
                # Another thread may know more by now: of the file that took the name while this one was locked.
                if self._seen is None or file.count > self._seen[0]:
                    self._seen = file.count, file.head
                if file.prefix is not None:
                    self._memory.append(_Memory(file.prefix, account))

    def _recall(self) -> _Memory | None:
        """Take what is known of the file: an account that grows has one user, and none after an error."""
        try:
            memory = self._memory.pop()
        except IndexError:
            return None
        return memory if self._seen is not None and memory.prefix.lines <= self._seen[0] else None

    def spent(self, stream: str) -> Guarantee:
        """What all releases of a stream promise together; epsilon 0 where there are none."""
        return accounting.compose(self.entries(stream), stream)

    def remaining(
        self, stream: str, *, start: int | None = None, stop: int | None = None, part: str | None = None
    ) -> Budget:
        """What one more release of a stream may cost, on these positions or this part of it; never overstated.

        It is stated in the unit that the stream has already: where a first release for one value (replace) would make
        the earlier ones for one element count twice, less is left.  Delta is what a release's delta and the distance
        of its sampled noise may cost together (:func:`fastdp.ledger.compose`).
        """
        probe = Guarantee(0.0)
        asked = entry.new(Entry(0, "", stream, probe, part, start, stop, None, "", "spent"))
        with self._opened() as (_, account):
            return self._left(account, asked.stream, region(asked))

    def limit(self, stream: str) -> Budget:
        """The limits of a stream: the ledger's and this object's, the lower of each."""
        asked = entry.name("stream", stream)
        with self._opened() as (_, account):
            return self._lowest(account, asked)

    def limits(self) -> dict[str | None, Budget]:
        """The limits that hold for streams with one of their own, by stream; under None that of all others."""
        with self._opened() as (_, account):
            return {stream: account.limit(stream) for stream in account.limits}

    def entries(self, stream: str | None = None) -> list[Entry]:
        """The releases of a stream, or all, in the order in which they were recorded."""
        asked = None if stream is None else entry.name("stream", stream)
        found: dict[int, Entry] = {}
        with self._opened(found):
            return [each for each in found.values() if asked is None or each.stream == asked]

    @property
    def streams(self) -> list[str]:
        """Names of the streams with entries, sorted."""
        with self._opened() as (_, account):
            return sorted(account.tallies)

    def verify(self, head: str | None = None) -> Verification:
        """Check every seal and every line, and that a line seen earlier is still there.

        Parameters
        ----------
        head : str, optional
            A seal that an earlier call told, or its beginning of at least 16 digits.  The chain alone cannot tell
            that its last lines are missing.

        Raises
        ------
        StateError
            Naming the line that is wrong, or that no line has the seal.
        """
        if head is not None and len(entry.text("head", head, 64)) < 16:
            raise ParameterError(f"head = {validation.shown(head)}: expected a seal, 16 to 64 hexadecimal digits")
        with self._opened(anew=True) as (file, account):
            if head is not None and not file.has_seal(head.lower()):
                raise StateError(
                    f"ledger {file.name}: no line has the seal {head}; expected the ledger that had it, grown (its "
                    "last lines are missing, or it is another one)"
                )
            return Verification(file.count, file.head.hex(), len(file.torn), list(account.reserved))

    def _lowest(self, account: Account, stream: str) -> Budget:
        told = account.limit(stream)
        return Budget(min(told.epsilon, self._limit.epsilon), min(told.delta, self._limit.delta))

    def _left(self, account: Account, stream: str, region: Region) -> Budget:
        tally = account.tally(stream)
        return accounting.left(self._lowest(account, stream), tally.total(stream), tally.total(stream, region))


def region(wanted: Entry) -> Region:
    """What a release looks at."""
    return Region(wanted.part, wanted.start, wanted.stop)
