"""The ledger: releases recorded before they happen, and refused where they would pass a limit."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import EllipsisType, TracebackType
from typing import Any, Self

from fastdp import validation
from fastdp.errors import BudgetError, ParameterError, StateError
from fastdp.ledger import accounting, chain, entry
from fastdp.ledger.account import ENDS, Account, budget, read_account
from fastdp.ledger.accounting import Budget, Region
from fastdp.ledger.chain import Session
from fastdp.ledger.entry import Entry
from fastdp.privacy import Guarantee
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


class Ledger:
    """An append-only record of what was released on which stream, under which guarantee, within which limit.

    Parameters
    ----------
    path : path
        The file; made, owner-only, if it is not there.
    limit_epsilon, limit_delta : float, optional
        Most that any stream may cost, for releases through this object; limits in the file (:meth:`set_limit`) hold
        as well.  None: no limit of this object's.
    key : Key or 32 bytes, optional
        Seals the lines with HMAC-SHA-256, so that only who has the key can write a line that passes.  Without it they
        are sealed with SHA-256, which tells accidents and careless edits, not a forger.
    create : bool
        False: a missing file is an error.
    recover : bool
        Whether a last line that is cut off may be given up: a line that tells of it, and of what is left of it, takes
        its place.  Without this such a ledger can be read and takes no more entries.

    Notes
    -----
    Privacy: the ledger computes basic composition, exactly (``docs/privacy.md``), and releases nothing itself.  It
    knows what it is told: two names for one stream, or positions and parts that are not disjoint, it cannot see.

    Every call locks the file, checks it from the first line on, and adds at most one line, synced before the call
    returns.  Objects can be shared by threads, and processes may have one each.  A line is never changed.

    A release is reserved before it happens and committed afterwards.  A reservation whose process died counts as
    spent, for ever: nobody knows whether the output had left.
    """

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
        self._path = Path(os.path.realpath(path))
        self._limit = budget("limit_epsilon", limit_epsilon, "limit_delta", limit_delta)
        self._key = Key.from_bytes(key) if isinstance(key, (bytes, bytearray)) else key
        if self._key is not None and not isinstance(self._key, Key):
            raise ParameterError(f"key: expected 32 bytes, a Key or None, got {type(key).__name__}")
        self._seen: tuple[int, str] | None = None
        if validation.flag("create", create) and not self._path.exists():
            chain.create(self._path, self._key)
        with self._opened() as session:
            if validation.flag("recover", recover):
                session.recover()

    def __repr__(self) -> str:
        return f"Ledger({str(self._path)!r})"

    @contextmanager
    def _opened(self) -> Iterator[Session]:
        """The checked file, locked, which holds all that this object has seen of it."""
        with chain.opened(self._path, self._key) as session:
            if self._seen is not None:
                count, head = self._seen
                if len(session.seals) < count or session.seals[count - 1] != head:
                    raise StateError(
                        f"ledger {str(self._path)!r} lacks lines that this object has seen: expected the same file, "
                        "grown (was an old copy put back?)"
                    )
            self._seen = len(session.seals), session.seals[-1]
            try:
                yield session
            finally:
                self._seen = len(session.seals), session.seals[-1]

    # Releases.

    def spend(
        self,
        guarantee: Any,
        *,
        stream: str,
        start: int | None = None,
        stop: int | None = None,
        part: str | None = None,
        mechanism: Any = None,
        note: str = "",
    ) -> Entry:
        """Record a release, before it happens: reserved and committed in one line.

        Parameters
        ----------
        guarantee : Guarantee or publisher
            What the release promises; of a publisher its ``guarantee``, and its class and public parameters become
            the mechanism.  A simulation is recorded and costs nothing.
        stream : str
            Name of the stream; budgets are per stream.
        start, stop : int, optional
            The release looks at positions [start, stop) only, counted from the stream's first value and with the
            hold-out among them; without stop, at all from start on.  Only for one value that is replaced, because
            under other adjacencies positions move.
        part : str, optional
            Or at a part with this label only.  Parts with different labels must be disjoint, by facts that are public
            or (add or remove one element) follow from an element itself; the same label means the same values.
            Only for one value, event or point: more than one may lie in several parts.
        mechanism : str or dict, optional
            What releases, in words or as JSON.
        note : str
            Anything.

        Returns
        -------
        Entry
            As it was recorded.

        Raises
        ------
        BudgetError
            If the stream would then have cost more than a limit; nothing is recorded.
        ParameterError
            For arguments that are not accepted, or a unit that does not compose with those on this stream.
        StateError
            If the file is damaged, locked or cannot be written; nothing is recorded then.
        """
        return self._enter("spend", guarantee, stream, start, stop, part, mechanism, note)

    def reserve(
        self,
        guarantee: Any,
        *,
        stream: str,
        start: int | None = None,
        stop: int | None = None,
        part: str | None = None,
        mechanism: Any = None,
        note: str = "",
        cancel_on: tuple[type[Exception], ...] = (),
    ) -> Reservation:
        """Set budget aside for a release that begins now: ``with ledger.reserve(...): release()``.

        The block's end commits it; a block that raises leaves it reserved, which counts as spent.

        Parameters
        ----------
        cancel_on : tuple of exception classes
            Where the block raises one of these, nothing was released: the budget is free again.
        guarantee, stream, start, stop, part, mechanism, note
            As for :meth:`spend`, and its errors.
        """
        made = self._enter("reserve", guarantee, stream, start, stop, part, mechanism, note)
        return Reservation(self, made, cancel_on)

    def _enter(
        self,
        kind: str,
        guarantee: Any,
        stream: str,
        start: int | None,
        stop: int | None,
        part: str | None,
        mechanism: Any,
        note: str,
    ) -> Entry:
        if not isinstance(guarantee, Guarantee) and isinstance(getattr(guarantee, "guarantee", None), Guarantee):
            mechanism = entry.described(guarantee) if mechanism is None else mechanism
            guarantee = guarantee.guarantee
        state = "spent" if kind == "spend" else "reserved"
        wanted = entry.new(Entry(0, "", stream, guarantee, part, start, stop, mechanism, note, state))
        body = {"kind": kind, **entry.to_line(wanted)}
        with self._opened() as session:
            account = read_account(session)
            if wanted.counts:
                self._refuse(account, wanted)
            line = session.append(body)
            return replace(wanted, id=line["id"], time=line["time"])

    def _refuse(self, account: Account, wanted: Entry) -> None:
        """BudgetError if a limit would be passed."""
        before = account.of(wanted.stream)
        after = accounting.total([*before, wanted], wanted.stream)
        for limit, whose in ((account.limit(wanted.stream), "the ledger's"), (self._limit, "the caller's")):
            if not after.within(limit):
                spent, rest = accounting.compose(before), self._left(account, wanted.stream, _region(wanted))
                more = accounting.compose([wanted])
                raise BudgetError(
                    f"stream {wanted.stream!r}: {_amount(more)} more would pass {whose} limit of "
                    f"{_amount(limit)}; spent are {_amount(spent)}, expected at most {_amount(rest)} (nothing was "
                    "recorded)"
                )

    def _end(self, reserved: Entry, kind: str, stop: int | None = None) -> Entry:
        body: dict[str, Any] = {"kind": kind, "of": reserved.id}
        if stop is not None:
            if reserved.start is None:
                raise ParameterError(f"stop = {stop!r}: expected None, because the reservation has no start")
            body["stop"] = validation.integer("stop", stop, reserved.start + 1, reserved.stop)
        with self._opened() as session:
            found = read_account(session).entries.get(reserved.id)
            if found is None or found.state != "reserved":
                state = "not there" if found is None else found.state
                raise StateError(f"{kind} of entry {reserved.id}: it is {state}; expected a reservation")
            session.append(body)
            return replace(found, state=ENDS[kind], stop=body.get("stop", found.stop))

    # What it adds up to.

    def spent(self, stream: str) -> Guarantee:
        """What all releases of a stream promise together; epsilon 0 where there are none."""
        with self._opened() as session:
            return accounting.compose(read_account(session).of(entry.name("stream", stream)), stream)

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
        with self._opened() as session:
            return self._left(read_account(session), asked.stream, _region(asked))

    def limit(self, stream: str) -> Budget:
        """The limits of a stream: the ledger's and this object's, the lower of each."""
        with self._opened() as session:
            return self._lowest(read_account(session), entry.name("stream", stream))

    def limits(self) -> dict[str | None, Budget]:
        """The limits that hold for streams with one of their own, by stream; under None that of all others."""
        with self._opened() as session:
            account = read_account(session)
            return {stream: account.limit(stream) for stream in account.limits}

    def set_limit(
        self,
        epsilon: float | EllipsisType | None = ...,
        delta: float | EllipsisType | None = ...,
        *,
        stream: str | None = None,
        note: str = "",
    ) -> None:
        """Record a limit for one stream, or for all that have none of their own; the last one recorded holds.

        Parameters
        ----------
        epsilon, delta : float or None
            None: no limit.  Left out: as it was, and where a stream's own was never told, that of all streams.  A
            limit below what is spent refuses all further releases.
        stream : str, optional
            Which; None for all.
        note : str
            Anything, such as who decided it.
        """
        named = {
            part: told
            for part, told in (("epsilon", epsilon), ("delta", delta))
            if not isinstance(told, EllipsisType)
        }
        limit = budget("epsilon", named.get("epsilon"), "delta", named.get("delta"))
        body = {
            "kind": "limit",
            "stream": None if stream is None else entry.name("stream", stream),
            **{part: None if math.isinf(getattr(limit, part)) else getattr(limit, part) for part in named},
            "note": entry.text("note", note, entry.LONGEST_NOTE, empty=True),
        }
        with self._opened() as session:
            read_account(session)
            session.append(body)

    def entries(self, stream: str | None = None) -> list[Entry]:
        """The releases of a stream, or all, in the order in which they were recorded."""
        asked = None if stream is None else entry.name("stream", stream)
        with self._opened() as session:
            account = read_account(session)
        return list(account.entries.values()) if asked is None else account.of(asked)

    @property
    def streams(self) -> list[str]:
        """Names of the streams with entries, sorted."""
        return sorted({found.stream for found in self.entries()})

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
        with self._opened() as session:
            account = read_account(session)
            if head is not None and not any(seal.startswith(head.lower()) for seal in session.seals):
                raise StateError(
                    f"ledger {str(self._path)!r}: no line has the seal {head}; expected the ledger that had it, "
                    "grown (its last lines are missing, or it is another one)"
                )
            reserved = [found.id for found in account.entries.values() if found.state == "reserved"]
            return Verification(len(session.lines), session.seals[-1], len(session.torn), reserved)

    def _lowest(self, account: Account, stream: str) -> Budget:
        told = account.limit(stream)
        return Budget(min(told.epsilon, self._limit.epsilon), min(told.delta, self._limit.delta))

    def _left(self, account: Account, stream: str, region: Region) -> Budget:
        before = account.of(stream)
        spent, met = accounting.total(before, stream), accounting.total(before, stream, region)
        return accounting.left(self._lowest(account, stream), spent, met)


class Reservation:
    """Budget set aside for one release; see :meth:`Ledger.reserve`.

    Attributes
    ----------
    entry : Entry
        As it is recorded.
    """

    def __init__(self, ledger: Ledger, made: Entry, cancel_on: tuple[type[Exception], ...] = ()) -> None:
        self._ledger = ledger
        self._cancel_on = cancel_on
        self.entry = made

    def commit(self, stop: int | None = None) -> Entry:
        """Say that the release has happened.

        Parameters
        ----------
        stop : int, optional
            Where it ended, within what was reserved; positions from there on were not looked at.
        """
        self.entry = self._ledger._end(self.entry, "commit", stop)
        return self.entry

    def cancel(self) -> Entry:
        """Say that nothing was released and nothing will be: the budget is free again."""
        self.entry = self._ledger._end(self.entry, "cancel")
        return self.entry

    def keep(self) -> None:
        """Say that something is about to be released: from now on no error gives the budget back."""
        self._cancel_on = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.entry.state != "reserved":
            return
        if kind is None:
            self.commit()
        elif issubclass(kind, self._cancel_on):
            self.cancel()


def _region(wanted: Entry) -> Region:
    return Region(wanted.part, wanted.start, wanted.stop)


def _amount(loss: Guarantee | Budget) -> str:
    """Epsilon and delta for a message, all digits; without a delta of no interest."""
    delta = f", delta = {loss.delta!r}" if loss.delta and math.isfinite(loss.delta) else ""
    return f"epsilon = {loss.epsilon!r}{delta}"
