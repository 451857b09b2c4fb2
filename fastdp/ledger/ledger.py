"""The ledger: releases recorded before they happen, and refused if they would pass a limit."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import EllipsisType, TracebackType
from typing import Any, Protocol, Self

from fastdp import validation
from fastdp.errors import BudgetError, DataError, ParameterError, StateError
from fastdp.guarantee import Guarantee
from fastdp.kinds import Duration, Json
from fastdp.ledger import composition
from fastdp.ledger.composition import Budget, Loss, rounded
from fastdp.ledger.entry import NOTE, Entry, Text, described, normal_name
from fastdp.ledger.odometer import Region, compose
from fastdp.ledger.store import ENDS, ENTERS, LedgerState, Store, Verification, budget, ending
from fastdp.noise.key import Key
from fastdp.units import Period, Times, parse_length, shown_time

__all__ = ["Ledger", "Reservation", "Verification"]


class Guaranteed(Protocol):
    """A publisher or plan that states its guarantee."""

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of everything that this publisher or plan releases."""


class Ledger:
    """An append-only record of releases by stream, with their guarantees, within limits.

    Parameters
    ----------
    path : path
        The file, an SQLite database; created, owner-only, if missing.
    limit_epsilon, limit_delta : float, optional
        Limit per stream for releases through this object, besides limits in the file (:meth:`set_limit`).
    key : Key or 32 bytes, optional
        Seals the lines with HMAC-SHA-256, against forgery; without it with SHA-256, against accidents.
    create : bool
        False: a missing file is an error.

    Notes
    -----
    Privacy: exact basic composition (``docs/privacy.md``) of releases with independent noise: a publisher is refused
    whose noise an entry has already, or is unknown.  Two names of one stream, shares that overlap and a secret used
    elsewhere cannot be detected.

    Each call is one transaction, on disk before it returns, in time independent of the number of releases.  Threads
    can share an object, and processes a file on a local disk.  A line is never changed.  A release is reserved, then
    committed; a reservation whose process died counts as spent: its output may have left.

    Examples
    --------
    >>> import tempfile, fastdp
    >>> ledger = fastdp.Ledger(tempfile.mkdtemp() + "/budget", limit_epsilon=1.0)
    >>> entry = ledger.spend(fastdp.Guarantee(0.75), stream="meter 17")
    >>> ledger.remaining("meter 17").epsilon
    0.25
    >>> ledger.close()
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        limit_epsilon: float | None = None,
        limit_delta: float | None = None,
        key: Key | bytes | None = None,
        create: bool = True,
    ) -> None:
        self._path = Path(os.path.realpath(validation.path("path", path)))
        self._limit = budget(limit_epsilon=limit_epsilon, limit_delta=limit_delta)
        secret = Key.from_bytes(key) if isinstance(key, (bytes, bytearray)) else key
        if secret is not None and not isinstance(secret, Key):
            raise ParameterError(f"key: expected 32 bytes, a Key or None, got {type(key).__name__}")
        self._store = Store(self._path, secret, create=validation.flag("create", create))

    def __repr__(self) -> str:
        return f"Ledger({str(self._path)!r})"

    def close(self) -> None:
        """Close the file, so that it can be moved or copied; the next call opens it again."""
        self._store.close()

    def spent(self, stream: str) -> Guarantee:
        """Guarantee of all releases of a stream together; epsilon 0 without any."""
        return compose(self.entries(stream), stream)

    def remaining(
        self,
        stream: str,
        *,
        start: int | None = None,
        stop: int | None = None,
        part: str | None = None,
        times: Times | None = None,
    ) -> Budget:
        """Cost allowed to one more release of a stream: on these positions, this share or these times of a table.

        Never overstated where epsilons add up; where rhos do, a pure release below it may be refused.  In the
        stream's present unit: less is left for a weaker one, which makes earlier releases count twice.  Delta
        includes the distance of sampled noise (:func:`fastdp.ledger.compose`).
        """
        asked = Entry(0, "", stream, Guarantee(0.0), part, start, stop, None, "", "spent").checked()
        if times is not None and not isinstance(times, Times):
            raise ParameterError(f"times = {validation.shown(times)}: expected Times of fastdp.units")
        region = Region(asked.part, asked.start, asked.stop) if times is None else Region.at(times)
        with self._store.transaction(write=False) as state:
            return self._left(state, asked.stream, region)

    def limit(self, stream: str, per: Duration | None = None) -> Budget:
        """Limit of a stream: the lower of the ledger's and this object's; with ``per`` the ledger's for a period."""
        asked, length = normal_name("stream", stream), _length(per)
        with self._store.transaction(write=False) as state:
            found = state.limit(asked, length)
        return found if length else _least(found, self._limit)

    def limits(self, per: Duration | None = None) -> dict[str | None, Budget]:
        """Limits of streams with one of their own, by stream; under None that of all others."""
        length = _length(per)
        with self._store.transaction(write=False) as state:
            return state.limits(length)

    def by_period(self, stream: str, per: Duration = "1y") -> dict[str | None, Budget]:
        """Loss of a person, with all their rows, in each calendar period of the data's time.

        A person counts once for each period of their unit; a unit that stands for k rows assumes that no person has
        more.  Releases for one row know no person, and are left out.

        Parameters
        ----------
        stream : str
            Name of the stream.
        per : str or timedelta
            Length of the periods: "1mo", "1y" and others, from midnight of the unit's zone.

        Returns
        -------
        dict of str to Budget
            By beginning of the period; under None each period without a release of its own, if those without public
            times cost anything.  Empty without a unit that has periods, of this length or shorter.

        Raises
        ------
        ParameterError
            If periods of a unit cross the ends of these, as weeks do those of months.
        """
        asked = normal_name("stream", stream)
        with self._store.transaction(write=False) as state:
            return _by_period(state, asked, str(_length(per)))

    def report(self, stream: str | None = None) -> str:
        """Cost of each stream, the rest of its limits, and the loss of a person in a year, as text."""
        names = self.streams if stream is None else [normal_name("stream", stream)]
        return "\n".join(line for name in names for line in self._lines(name)) or "No releases yet."

    def _lines(self, stream: str) -> Iterator[str]:
        """Lines of the report on one stream."""
        cost, limit = self.spent(stream), self.limit(stream)
        left = (
            f"left {in_words(self.remaining(stream))} of {in_words(limit)}" if min(limit) < math.inf else "no limit"
        )
        yield f"{stream!r}: {in_words(cost)} for {cost.unit} ({cost.adjacency}); {left}"
        with self._store.transaction(write=False) as state:
            lengths = {length: state.limit(stream, length) for length in state.lengths()}
            for length in dict.fromkeys(("1y", *lengths)):
                bound = lengths.get(length, Budget(math.inf, math.inf))
                said = f"; limit {in_words(bound)} in each" if min(bound) < math.inf else ""
                if found := _by_period(state, stream, length):
                    begin, worst = max(found.items(), key=lambda item: (item[1], item[0] or ""))
                    where = "any period" if begin is None else f"the period from {begin} on"
                    yield f"  a person, in {where} ({length}): {in_words(Guarantee(*worst))}{said}"
                elif said:
                    yield f"  per {length}{said}, which does not renew: no unit has periods so short"

    def entries(self, stream: str | None = None) -> list[Entry]:
        """Releases of a stream, or all, in the order of recording."""
        asked = None if stream is None else normal_name("stream", stream)
        with self._store.transaction(write=False) as state:
            return state.entries(asked)

    @property
    def streams(self) -> list[str]:
        """Sorted names of the streams with entries."""
        with self._store.transaction(write=False) as state:
            return state.streams()

    def verify(self, head: str | None = None) -> Verification:
        """Check every line, seal and total, and that a line seen earlier is still there; no other call does.

        Parameters
        ----------
        head : str, optional
            A seal that an earlier call returned, or its first 16 digits or more; without it missing last lines are
            not found.

        Raises
        ------
        StateError
            Naming the line or table that is wrong, or if no line has the seal.
        """
        if head is not None and len(Text(64).check("head", head)) < 16:
            raise ParameterError(f"head = {validation.shown(head)}: expected a seal, 16 to 64 hexadecimal digits")
        return self._store.verify(None if head is None else head.lower())

    def spend(
        self,
        guarantee: Guarantee | Guaranteed,
        *,
        stream: str,
        start: int | None = None,
        stop: int | None = None,
        part: str | None = None,
        mechanism: object = None,
        note: str = "",
    ) -> Entry:
        """Record a release, before it happens: reserved and committed in one line.

        Parameters
        ----------
        guarantee : Guarantee or publisher
            Of a publisher its ``guarantee``, class, public parameters and the fingerprint of its noise are recorded;
            one without ``noise_fingerprint`` is refused.  A simulation costs nothing.
        stream : str
            Name of the stream; budgets are per stream.
        start, stop : int, optional
            Positions [start, stop) that the release reads, counted from the stream's first value, hold-out included;
            without stop, all from start on.  Only for one value that is replaced.
        part : str, optional
            Label of the share that the release reads.  Shares must be disjoint by public facts, or (add or remove) by
            the element itself.  Only for one value, event or point.
        mechanism : str or dict, optional
            The mechanism, in words or as JSON.
        note : str
            Anything.

        Returns
        -------
        Entry
            The recorded entry.

        Raises
        ------
        BudgetError
            If the stream would cost more than a limit, or an earlier entry has the publisher's noise
            (:meth:`resume`).
        ParameterError
            For arguments that are not accepted, or a unit that does not compose with the stream's
            (``docs/ledger.md``).
        StateError
            If the file is damaged, locked or cannot be written.  In all cases nothing is recorded.
        """
        return self._enter("spend", guarantee, mechanism, stream=stream, start=start, stop=stop, part=part, note=note)

    def reserve(
        self,
        guarantee: Guarantee | Guaranteed,
        *,
        stream: str,
        start: int | None = None,
        stop: int | None = None,
        part: str | None = None,
        mechanism: object = None,
        note: str = "",
        cancel_on: tuple[type[Exception], ...] = (),
    ) -> Reservation:
        """Set budget aside for a release that begins now: ``with ledger.reserve(...): release()``.

        The end of the block commits it; a block that raises leaves it reserved, which counts as spent.

        Parameters
        ----------
        cancel_on : tuple of exception classes
            If the block raises one of these, nothing was released and the budget is free again.  They must not depend
            on the data: :class:`fastdp.errors.DataError` and its bases are refused.
        guarantee, stream, start, stop, part, mechanism, note
            As for :meth:`spend`, and its errors.
        """
        if not _depend_on_no_data(cancel_on):
            raise ParameterError(
                f"cancel_on = {validation.shown(cancel_on)}: expected a tuple of exception classes whose errors do "
                "not depend on the data; a DataError does, so no class that it belongs to is accepted"
            )
        made = self._enter(
            "reserve", guarantee, mechanism, stream=stream, start=start, stop=stop, part=part, note=note
        )
        return Reservation(self, made, cancel_on)

    def resume(self, number: int, publisher: Guaranteed) -> Reservation:
        """Continue a release that was reserved but never ended, for example after a crash.

        Nothing is spent again: the publisher gives the same values the same noise.  Other values would reveal their
        difference, which the ledger cannot detect.

        Parameters
        ----------
        number : int
            The entry's ``id``.
        publisher : publisher
            With the key and composition of the reserved one, before its first value.

        Returns
        -------
        Reservation
            No error frees its budget, because some output may be out.

        Raises
        ------
        ParameterError, StateError
            If the publisher's noise is not the entry's; if the entry is not reserved.
        """
        validation.integer("number", number, 1)
        with self._store.transaction(write=False) as account:
            reserved, state = account.reserved(number), account.state(number)
        if reserved is None:
            raise StateError(
                f"entry {number} is {state}: expected one that is still reserved (a finished release is repeated on "
                "the very same values without the ledger)"
            )
        if reserved.fingerprint is None or reserved.fingerprint != getattr(publisher, "noise_fingerprint", None):
            raise ParameterError(
                f"publisher: its noise is not that of entry {number}; expected the same key, parameters and stream"
            )
        return Reservation(self, reserved)

    def set_limit(
        self,
        epsilon: float | EllipsisType | None = ...,
        delta: float | EllipsisType | None = ...,
        *,
        stream: str | None = None,
        per: Duration | None = None,
        note: str = "",
    ) -> None:
        """Record a limit for one stream, or for all without their own; the last one recorded holds.

        Parameters
        ----------
        epsilon, delta : float or None
            None: no limit.  Omitted: unchanged, or for a stream without its own, that of all streams.  A limit below
            the spent amount refuses all further releases.
        stream : str, optional
            Name of the stream; None for all.
        per : str or timedelta, optional
            The limit renews: it holds for a person with all their rows in each calendar period of this length, such
            as "1mo", of the data's time, whenever the releases are made.  A release without public start and stop
            counts in every period; a unit whose periods are longer, or that has none, has the limit once and for
            all.  Limits for several lengths, and one without, all hold.
        note : str
            Anything, such as who decided it.
        """
        given = (("epsilon", epsilon), ("delta", delta))
        named = {field: amount for field, amount in given if not isinstance(amount, EllipsisType)}
        limit = budget(epsilon=named.get("epsilon"), delta=named.get("delta"))._asdict()
        own = None if stream is None else normal_name("stream", stream)
        amounts = {field: None if math.isinf(limit[field]) else limit[field] for field in named}
        body = {"kind": "limit", "stream": own, "per": _length(per), **amounts, "note": NOTE.check("note", note)}
        with self._store.transaction(write=True) as state:
            state.append(body)

    def _enter(self, kind: str, given: Guarantee | Guaranteed, mechanism: object, **said: Any) -> Entry:
        """Append a line that spends or reserves, and return its entry; BudgetError undoes it."""
        fingerprint, guarantee = None, given
        promised = getattr(given, "guarantee", None)
        if not isinstance(given, Guarantee) and isinstance(promised, Guarantee):
            if not (promised.simulated or hasattr(given, "noise_fingerprint")):
                raise ParameterError(
                    f"guarantee is a {type(given).__name__} without a noise_fingerprint, so its noise could be "
                    "used twice: expected a publisher that has one (None: it draws no noise from a key), or the "
                    "fastdp.Guarantee of a release with noise of its own"
                )
            fingerprint = getattr(given, "noise_fingerprint", None)
            mechanism, guarantee = described(given) if mechanism is None else mechanism, promised
        plain: Json = {"guarantee": guarantee, "mechanism": mechanism, "fingerprint": fingerprint}
        wanted = Entry(0, "", state=ENTERS[kind], **plain, **said).checked()
        with self._store.transaction(write=True) as state:
            _refuse_noise(state, wanted)
            line = state.append({"kind": kind, **wanted.to_line()})
            if wanted.counts:
                self._refuse(state, wanted)
            return replace(wanted, id=line["id"], time=line["time"], nonce=line["nonce"])

    def _refuse(self, state: LedgerState, wanted: Entry) -> None:
        """BudgetError if the release just added passes a limit; the error undoes the transaction."""
        stream, odometer = wanted.stream, state.odometer
        limit = self._lowest(state, stream)
        after = odometer.total(stream, limit=limit)
        if not after.within(limit):
            odometer.add(wanted, -1)
            before = odometer.total(stream, limit=limit)
            over = before if not before.within(limit) else after
            part = 1 if Loss(over.epsilon, Fraction(0)).within(limit) else 0
            name = Budget._fields[part]
            own = self._limit[part] == limit[part] < _recorded(state, stream)[part]
            whose = f" (given as limit_{name}= or --limit{'-delta' if part else ''})" if own else ""
            if over is before:
                said = f"has spent {rounded(before)[part]!r} of {limit[part]!r} {name} already{whose}"
            else:
                needs = composition.alone(wanted.guarantee)
                left = self._left(state, stream, Region.of(wanted))[part]
                said = f"has {left!r} of {limit[part]!r} {name} left{whose}, "
                said += f"this release needs {rounded(needs)[part]!r}"
                if after.epsilon > before.epsilon + needs.epsilon:
                    twice, by_rho = "beside a weaker unit a release counts twice", "not epsilons add up here but rhos"
                    why = twice if math.isinf(before.rho) else by_rho
                    said += f" (in total {rounded(after)[part]!r}: {why})"
            raise BudgetError(f"Refused: stream {stream!r} {said}. Nothing was recorded")
        for length, bound, per, number in _renewing(state, stream, Region.of(wanted)):
            after = odometer.of_person(stream, per, number)
            if not after.within(bound):
                odometer.add(wanted, -1)
                before = odometer.of_person(stream, per, number)
                part = 1 if Loss(after.epsilon, Fraction(0)).within(bound) else 0
                ends = " to ".join(shown_time(per.edge(each), per.time_zone) for each in (number, number + 1))
                own = Region.of(wanted).axis != "" or number in odometer.released(stream, per)
                when = f"from {ends}" if own else "in any period"
                raise BudgetError(
                    f"Refused: stream {stream!r} has cost a person {rounded(before)[part]!r} of {bound[part]!r} "
                    f"{Budget._fields[part]} {when} (limit per {length}); with this release it would "
                    f"be {rounded(after)[part]!r}. Nothing was recorded"
                )

    def _end(self, reserved: Entry, kind: str, stop: int | None = None) -> Entry:
        """Append a line that commits or cancels a reservation, and return the ended entry."""
        where = ending(reserved, stop)
        with self._store.transaction(write=True) as state:
            found = state.reserved(reserved.id)
            if found != reserved:
                now = state.state(reserved.id) if found is None else "another release"
                raise StateError(f"{kind} of entry {reserved.id}: it is {now}; expected a reservation")
            state.append({"kind": kind, "of": reserved.id, **({} if stop is None else {"stop": where})})
            return replace(reserved, state=ENDS[kind], stop=where)

    def _lowest(self, state: LedgerState, stream: str) -> Budget:
        """Lowest of the file's and this object's limits, for each amount."""
        return _least(_recorded(state, stream), self._limit)

    def _left(self, state: LedgerState, stream: str, region: Region) -> Budget:
        """Cost allowed to a release on a region."""
        odometer, limit = state.odometer, self._lowest(state, stream)
        total = odometer.total
        found = composition.left(limit, total(stream, limit=limit), total(stream, region, limit))
        for _, bound, per, number in _renewing(state, stream, region):
            loss = odometer.of_person(stream, per, number)
            changes = odometer.changes(stream, per, number, region)
            found = _least(found, composition.left(bound, loss, loss, changes))
        return found


def _least(*limits: Budget) -> Budget:
    """The least of each amount."""
    return Budget(*map(min, zip(*limits, strict=True)))


def _length(per: Duration | None) -> str | None:
    """Text of a period's length."""
    return None if per is None else parse_length("per", per)[0]


def _recorded(state: LedgerState, stream: str) -> Budget:
    """Lowest of the file's limits for a stream; one for each period also holds for one unit."""
    return _least(*(state.limit(stream, per) for per in (None, *state.lengths())))


def _renewing(state: LedgerState, stream: str, region: Region) -> Iterator[tuple[str, Budget, Period, int]]:
    """Limits that renew, with the periods that a region meets: length, limit, periods and number of the period."""
    for length in state.lengths():
        bound, per = state.limit(stream, length), state.odometer.renewal(stream, length)
        if per is not None and min(bound) < math.inf:
            for number in sorted(state.odometer.met(stream, per, region)):
                yield length, bound, per, number


def _by_period(state: LedgerState, stream: str, length: str) -> dict[str | None, Budget]:
    """Loss of a person by period; see :meth:`Ledger.by_period`."""
    odometer = state.odometer
    if (per := odometer.renewal(stream, length)) is None:
        return {}
    numbers = odometer.released(stream, per)
    found: dict[str | None, Budget] = {
        shown_time(per.edge(number), per.time_zone): rounded(odometer.of_person(stream, per, number))
        for number in sorted(numbers)
    }
    others = [rounded(odometer.of_person(stream, per, n)) for n in odometer.fullest(stream, per) - numbers]
    return found | {None: max(others)} if max(others, default=Budget(0.0, 0.0)) > (0.0, 0.0) else found


def in_words(loss: Guarantee | Budget) -> str:
    """Amounts with all their digits, as text: the finite ones of a limit; of a guarantee epsilon and any others."""
    if isinstance(loss, Budget):
        named = loss._asdict()
        return ", ".join(f"{name} = {amount!r}" for name, amount in named.items() if amount < math.inf) or "none"
    others = {"delta": loss.delta or math.inf, "rho": loss.rho}
    said = [f"{name} = {amount!r}" for name, amount in others.items() if amount < math.inf]
    return ", ".join([f"epsilon = {loss.epsilon!r}", *said])


def _depend_on_no_data(kinds: object) -> bool:
    """Return whether these are exception classes, none of them DataError or a base of it."""
    return isinstance(kinds, tuple) and all(
        isinstance(kind, type) and issubclass(kind, BaseException) and not issubclass(DataError, kind)
        for kind in kinds
    )


def _refuse_noise(state: LedgerState, wanted: Entry) -> None:
    """BudgetError if an earlier entry, of any stream, has the same noise."""
    earlier = None if wanted.fingerprint is None else state.noise(wanted.fingerprint)
    if earlier is not None:
        number, stream = earlier
        raise BudgetError(
            f"Refused: stream {wanted.stream!r}: the same secret and composition were used by entry {number} on "
            f"stream {stream!r}; equal noise on other values reveals their difference. Nothing was recorded; "
            "expected another key (key.of_stream(name)), or for entry "
            f"{number} again Ledger.resume({number}, publisher)"
        )


# Budget that is set aside for one release.


class Reservation:
    """Budget set aside for one release; see :meth:`Ledger.reserve`.

    Attributes
    ----------
    entry : Entry
        The recorded entry.
    """

    def __init__(self, ledger: Ledger, made: Entry, cancel_on: tuple[type[Exception], ...] = ()) -> None:
        self._ledger = ledger
        self._cancel_on = cancel_on
        self.entry = made

    def commit(self, stop: int | None = None) -> Entry:
        """Record that the release has happened.

        Parameters
        ----------
        stop : int, optional
            Its end, within the reservation; positions from there on were not read.

        Notes
        -----
        From here on no error frees the budget, even if this call fails (:meth:`keep`).
        """
        self.keep()
        self.entry = self._ledger._end(self.entry, "commit", stop)
        return self.entry

    def cancel(self) -> Entry:
        """Record that nothing was or will be released: the budget is free again."""
        self.entry = self._ledger._end(self.entry, "cancel")
        return self.entry

    def keep(self) -> None:
        """Declare that a release begins: from now on no error frees the budget."""
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


# ``ledger=`` and ``stream=`` of a function that releases: that stream's key, and its budget before the release.


def stream_key(secret: Key, stream: str | None) -> Key:
    """Key of the stream with this name; `secret` itself without a name."""
    return secret if stream is None else secret.of_stream(normal_name("stream", stream))


def charge(
    released: Guarantee | Guaranteed,
    ledger: Ledger | None,
    stream: str | None,
    *,
    part: str | None = None,
    mechanism: object = None,
) -> AbstractContextManager[object]:
    """Reserve the loss in a ledger, if there is one; the block that follows makes the release.

    As :meth:`fastdp.Ledger.reserve`; ParameterError also for a ledger without `stream`, or `part` without a ledger.
    """
    if ledger is None:
        if part is not None:
            raise ParameterError(f"part = {validation.shown(part)}: expected None without a ledger")
        return nullcontext()
    validation.part("ledger", ledger, Ledger, "fastdp.ledger")
    if stream is None:
        raise ParameterError("stream = None: expected the name of the stream or table, because there is a ledger")
    return ledger.reserve(released, stream=stream, part=part, mechanism=mechanism)
