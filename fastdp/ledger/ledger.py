"""The ledger records releases before they happen, and refuses them beyond a limit."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from types import EllipsisType, TracebackType
from typing import Any, Self

from fastdp import validation
from fastdp.errors import BudgetError, DataError, ParameterError, StateError, argument
from fastdp.guarantee import Guarantee, Guaranteed
from fastdp.kinds import Duration, Json
from fastdp.ledger.entry import NOTE, Entry, described
from fastdp.ledger.file import Store, Verification
from fastdp.ledger.odometer import EVERYWHERE, Budget, Loss, Region, alone, budget_left, rounded
from fastdp.ledger.store import ENTERS, LedgerState, budget, ending
from fastdp.noise.key import Key
from fastdp.notebook import SHOWN_ROWS, as_html
from fastdp.record import Text
from fastdp.units import Period, Times, normal_name, parse_length, shown_time
from fastdp.validation import refusal


class Ledger:
    """Records releases by stream with their guarantees, and refuses them beyond a limit.

    Parameters
    ----------
    path : path
        An SQLite database; created, owner-only, if missing.
    limit_epsilon, limit_delta : float, optional
        Limit per stream through this object, besides the file's (:meth:`set_limit`).
    key : Key or 32 bytes, optional
        Seals the lines with HMAC-SHA-256, against forgery; by default SHA-256, against accidents.
    create : bool
        False: a missing file is an error.

    Notes
    -----
    Privacy: exact composition (``docs/privacy.md``, section 3); a release is refused if its noise is unknown or in an
    entry.  Two names of one stream, overlapping parts and a secret used elsewhere are not detected.

    A call is one transaction, on disk before it returns; a power cut can undo the end of a reservation, which then
    counts.  Threads can share an object, processes a file on a local disk.

    Examples
    --------
    >>> import tempfile, fastdp
    >>> path = tempfile.mkdtemp() + "/budget"
    >>> ledger = fastdp.Ledger(path, limit_epsilon=1.0)
    >>> entry = ledger.spend(fastdp.Guarantee(0.75), stream="meter 17")
    >>> ledger.remaining("meter 17").epsilon
    0.25
    >>> ledger.close()
    """

    @validation.spelled
    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        limit_epsilon: float | None = None,
        limit_delta: float | None = None,
        key: Key | bytes | None = None,
        create: bool = True,
    ) -> None:
        text = validation.path("path", path)
        # SQLite's names for what is no file, or of a file by another notation.
        if text.startswith((":memory:", "file:")):
            raise validation.refusal("path", text, "a file's path, in tests one in a temporary folder")
        self._path = Path(os.path.realpath(text))
        self._limit = budget(limit_epsilon=limit_epsilon, limit_delta=limit_delta)
        secret = Key.from_bytes(key) if isinstance(key, (bytes, bytearray)) else key
        if secret is not None and not isinstance(secret, Key):
            raise ParameterError(f"key: expected 32 bytes, a Key or None, got {type(key).__name__}")
        self._store = Store(self._path, secret, create=validation.flag("create", create))

    def __repr__(self) -> str:
        return f"Ledger({str(self._path)!r})"

    def _repr_html_(self) -> str:
        rows, notes = [], []
        with self._store.transaction(write=False) as state:
            names = state.streams()
            for name in names[:SHOWN_ROWS]:
                cost, limit = state.odometer.guarantee(name), _least(state.limit(name), self._limit)
                left = in_words(self._left(state, name, EVERYWHERE)) if min(limit) < math.inf else "no limit"
                unit = f"{cost.unit} ({cost.adjacency})"
                rows.append((name, in_words(cost), unit, left, in_words(limit)))
                _, *periods = self._lines(state, name)
                notes += [f"{name}: {line.strip()}" for line in periods]
        heads = "stream", "cost", "for", "left", "limit"
        return as_html(repr(self), heads, rows, len(names) - len(rows), notes)

    def close(self) -> None:
        """Close the file until the next call; it can be moved if no other process has it open."""
        self._store.close()

    def spent(self, stream: str) -> Guarantee:
        """Guarantee of all releases of a stream; epsilon 0 without any."""
        asked = normal_name("stream", stream)
        with self._store.transaction(write=False) as state:
            return state.odometer.guarantee(asked)

    def remaining(
        self,
        stream: str,
        *,
        start: int | None = None,
        stop: int | None = None,
        part: str | None = None,
        times: Times | None = None,
    ) -> Budget:
        """Cost allowed to one more release of a stream, on these positions, this part or these times.

        In the stream's present unit.  Where epsilons add up it is never overstated; where rhos do, a pure release
        below it may be refused.  Delta includes the distance of sampled noise.
        """
        asked = Entry(0, "", stream, Guarantee(0.0), part, start, stop, None, "", "spent").checked()
        if times is not None and not isinstance(times, Times):
            raise refusal("times", times, "Times of fastdp.units")
        region = Region(asked.part, asked.start, asked.stop) if times is None else Region.at(times)
        with self._store.transaction(write=False) as state:
            return self._left(state, asked.stream, region)

    def limit(self, stream: str, per: Duration | None = None) -> Budget:
        """Limit of a stream: the lower of file's and object's, or the file's ``per`` period."""
        asked, length = normal_name("stream", stream), _length(per)
        with self._store.transaction(write=False) as state:
            recorded = state.limit(asked, length)
        return recorded if length else _least(recorded, self._limit)

    def limits(self, per: Duration | None = None) -> dict[str | None, Budget]:
        """Limits by stream; under None that of the others."""
        length = _length(per)
        with self._store.transaction(write=False) as state:
            return state.limits(length)

    def by_period(self, stream: str, per: Duration = "1y") -> dict[str | None, Budget]:
        """Loss of a person, with all their rows, in each calendar period of the data's time.

        A person counts once in each period of their unit.  Releases for one row are left out; a unit of k rows
        assumes that no person has more.

        Parameters
        ----------
        stream : str
            Name of the stream.
        per : str or timedelta
            Length of the periods, such as "1mo", from midnight of the unit's zone.

        Returns
        -------
        dict of str to Budget
            By beginning of the period; under None the loss in any other one, by releases without public times. Empty
            if no unit has periods of at most this length.

        Raises
        ------
        ParameterError
            If a unit's periods cross the ends of these, as weeks do.
        """
        asked = normal_name("stream", stream)
        with self._store.transaction(write=False) as state:
            return _by_period(state, asked, str(_length(per)))

    def report(self, stream: str | None = None) -> str:
        """Cost of each stream, budget left, and a person's loss in the worst year, as text."""
        asked = None if stream is None else normal_name("stream", stream)
        with self._store.transaction(write=False) as state:
            names = state.streams() if asked is None else [asked]
            return "\n".join(line for name in names for line in self._lines(state, name)) or "No releases yet."

    def _lines(self, state: LedgerState, stream: str) -> Iterator[str]:
        cost, limit = state.odometer.guarantee(stream), _least(state.limit(stream), self._limit)
        left = self._left(state, stream, EVERYWHERE)
        rest = f"left {in_words(left)} of {in_words(limit)}" if min(limit) < math.inf else "no limit"
        yield f"{stream!r}: {in_words(cost)} for {cost.unit} ({cost.adjacency}); {rest}"
        for length in dict.fromkeys(("1y", *state.lengths())):
            bound = state.limit(stream, length)
            said = f"; limit {in_words(bound)} in each" if min(bound) < math.inf else ""
            if by_period := _by_period(state, stream, length):
                begin, worst = max(by_period.items(), key=lambda item: (item[1], item[0] or ""))
                where = "any period" if begin is None else f"the period from {begin} on"
                yield f"  a person, in {where} ({length}): {in_words(Guarantee(*worst))}{said}"
            elif said:
                yield f"  per {length}{said}, which does not renew: no unit has periods so short"

    def entries(self, stream: str | None = None) -> list[Entry]:
        """Releases of one stream or all, in order."""
        asked = None if stream is None else normal_name("stream", stream)
        with self._store.transaction(write=False) as state:
            return state.entries(asked)

    @property
    def streams(self) -> list[str]:
        """Sorted names of streams with entries."""
        with self._store.transaction(write=False) as state:
            return state.streams()

    def verify(self, head: str | None = None) -> Verification:
        """Check every line, seal and sum; other calls check the sums that they read.

        Parameters
        ----------
        head : str, optional
            Last seal of an earlier call, 16 digits or more, which must still be there; it detects missing last lines.

        Raises
        ------
        StateError
            Names the wrong line or table; if no line has the seal.
        """
        if head is not None and len(Text(64).check("head", head)) < 16:
            raise refusal("head", head, "a seal, 16 to 64 hexadecimal digits")
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
        """Record a release, before it happens, as spent.

        Parameters
        ----------
        guarantee : Guarantee or publisher
            Of a publisher ``guarantee``, parameters and ``noise_fingerprint`` are recorded; without the last it is
            refused.  A simulation costs nothing.
        stream : str
            Name of the stream, which has the budget.
        start, stop : int, optional
            Positions [start, stop) that are read, hold-out included, counted from the stream's first value; without
            stop, no end. Only for one replaced value.
        part : str, optional
            Label of the part that is read.  Parts must be disjoint by public facts, or (add or remove) by the
            element itself.  Only for one value, event or point.
        mechanism : str or dict, optional
            In words or as JSON.
        note : str
            Anything.

        Raises
        ------
        BudgetError
            Beyond a limit, or if an entry has the publisher's noise (:meth:`resume`).
        ParameterError
            For another argument, or a unit that does not compose with the stream's (``docs/ledger.md``).
        StateError
            If the file is damaged, locked or not writable.  No error records anything.
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
        """Set budget aside for a release: ``with ledger.reserve(...): release()`` commits it at the end.

        A block that raises leaves it reserved, which counts as spent.

        Parameters
        ----------
        cancel_on : tuple of exception classes
            Only errors that mean that nothing was released: the budget is then free again.  They must not depend on
            the data: :class:`fastdp.errors.DataError` and its bases are refused.
        guarantee, stream, start, stop, part, mechanism, note
            As for :meth:`spend`.
        """
        classes: object = cancel_on
        if not isinstance(classes, tuple) or not all(
            isinstance(kind, type) and issubclass(kind, BaseException) and not issubclass(DataError, kind)
            for kind in classes
        ):
            raise ParameterError(
                f"cancel_on = {validation.shown(cancel_on)}: expected a tuple of exception classes whose errors do "
                "not depend on the data; a DataError does, so no class that it belongs to is accepted"
            )
        made = self._enter(
            "reserve", guarantee, mechanism, stream=stream, start=start, stop=stop, part=part, note=note
        )
        return Reservation(self, made, cancel_on)

    def resume(self, number: int, publisher: Guaranteed) -> Reservation:
        """Continue a release that was reserved but never ended, such as after a crash.

        Nothing is spent: equal values get equal noise; other values reveal their difference, undetected.

        Parameters
        ----------
        number : int
            The entry's ``id``.
        publisher : publisher
            With the key and composition of the reserved one, before its first value.

        Raises
        ------
        ParameterError, StateError
            If the noise is not the entry's; if it is not reserved.
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
        """Record a limit for one stream, or for all without their own; the last one holds.

        Parameters
        ----------
        epsilon, delta : float or None
            None: no limit.  Omitted: unchanged, or the general one for a stream without its own.  A limit below the
            spent amount refuses all further releases.
        stream : str, optional
            Name of the stream; None for all without their own.
        per : str or timedelta, optional
            The limit holds for a person with all their rows in each calendar period of this length ("1mo") of the
            data's time.  A release without public start and stop counts in every period; a unit without periods, or
            with longer ones, has the limit once.  All limits hold.
        note : str
            Such as who decided it.
        """
        amounts_given = (("epsilon", epsilon), ("delta", delta))
        named = {field: amount for field, amount in amounts_given if not isinstance(amount, EllipsisType)}
        limit = budget(epsilon=named.get("epsilon"), delta=named.get("delta"))._asdict()
        name = None if stream is None else normal_name("stream", stream)
        amounts = {field: None if math.isinf(limit[field]) else limit[field] for field in named}
        body = {"kind": "limit", "stream": name, "per": _length(per), **amounts, "note": NOTE.check("note", note)}
        with self._store.transaction(write=True) as state:
            state.append(body)

    def _enter(self, kind: str, released: Guarantee | Guaranteed, mechanism: object, **said: Any) -> Entry:
        fingerprint, guarantee = None, released
        promised = getattr(released, "guarantee", None)
        if not isinstance(released, Guarantee) and isinstance(promised, Guarantee):
            if not (promised.simulated or hasattr(released, "noise_fingerprint")):
                raise ParameterError(
                    f"guarantee is a {type(released).__name__} without a noise_fingerprint, so its noise could be "
                    "used twice: expected a publisher that has one (None: it draws no noise from a key), or the "
                    "fastdp.Guarantee of a release with noise of its own"
                )
            fingerprint = getattr(released, "noise_fingerprint", None)
            mechanism, guarantee = described(released) if mechanism is None else mechanism, promised
        plain: Json = {"guarantee": guarantee, "mechanism": mechanism, "fingerprint": fingerprint}
        wanted = Entry(0, "", state=ENTERS[kind], **plain, **said).checked()
        with self._store.transaction(write=True) as state:
            _refuse_noise(state, wanted)
            made = state.append({"kind": kind, **wanted.to_line()}, wanted) or wanted
            if wanted.counts:
                self._refuse(state, wanted)
            return made

    def _refuse(self, state: LedgerState, wanted: Entry) -> None:
        stream, odometer = wanted.stream, state.odometer
        limit = self._lowest(state, stream)
        after = odometer.total(stream, limit=limit)
        if not after.within(limit):
            odometer.add(wanted, -1)
            before = odometer.total(stream, limit=limit)
            over = before if not before.within(limit) else after
            # 0 is epsilon, 1 delta.
            field = 1 if Loss(over.epsilon, Fraction(0)).within(limit) else 0
            name = Budget._fields[field]
            from_object = self._limit[field] == limit[field] < _recorded(state, stream)[field]
            whose = f" ({argument(**{f'limit_{name}': limit[field]})})" if from_object else ""
            if over is before:
                said = f"has spent {rounded(before)[field]!r} of {limit[field]!r} {name} already{whose}"
            else:
                needs = alone(wanted.guarantee)
                left = self._left(state, stream, Region.of(wanted))[field]
                said = f"has {left!r} of {limit[field]!r} {name} left{whose}, "
                said += f"this release needs {rounded(needs)[field]!r}"
                if after.epsilon > before.epsilon + needs.epsilon:
                    twice, by_rho = "beside a weaker unit a release counts twice", "not epsilons add up here but rhos"
                    why = twice if math.isinf(before.rho) else by_rho
                    said += f" (in total {rounded(after)[field]!r}: {why})"
            raise BudgetError(f"Refused: stream {stream!r} {said}. Nothing was recorded")
        for length, bound, per, number in _renewing(state, stream, Region.of(wanted)):
            after = odometer.of_person(stream, per, number)
            if not after.within(bound):
                odometer.add(wanted, -1)
                before = odometer.of_person(stream, per, number)
                field = 1 if Loss(after.epsilon, Fraction(0)).within(bound) else 0
                ends = " to ".join(shown_time(per.edge(edge), per.time_zone) for edge in (number, number + 1))
                dated = Region.of(wanted).axis != "" or number in odometer.released(stream, per)
                when = f"from {ends}" if dated else "in any period"
                raise BudgetError(
                    f"Refused: stream {stream!r} has cost a person {rounded(before)[field]!r} of {bound[field]!r} "
                    f"{Budget._fields[field]} {when} (limit per {length}); with this release it would "
                    f"be {rounded(after)[field]!r}. Nothing was recorded"
                )

    def _end(self, reserved: Entry, kind: str, stop: int | None = None) -> Entry:
        where = ending(reserved, stop)
        # Not synced: lost in a power cut, it leaves the reservation, which counts.
        with self._store.transaction(write=True, synced=False) as state:
            current = state.reserved(reserved.id)
            if current != reserved:
                now = state.state(reserved.id) if current is None else "another release"
                raise StateError(f"{kind} of entry {reserved.id}: it is {now}; expected a reservation")
            body = {"kind": kind, "of": reserved.id, **({} if stop is None else {"stop": where})}
            return state.append(body, current) or reserved

    def _lowest(self, state: LedgerState, stream: str) -> Budget:
        return _least(_recorded(state, stream), self._limit)

    def _left(self, state: LedgerState, stream: str, region: Region) -> Budget:
        odometer, limit = state.odometer, self._lowest(state, stream)
        total = odometer.total
        left = budget_left(limit, total(stream, limit=limit), total(stream, region, limit))
        for _, bound, per, number in _renewing(state, stream, region):
            loss = odometer.of_person(stream, per, number)
            changes = odometer.changes(stream, per, number, region)
            left = _least(left, budget_left(bound, loss, loss, changes))
        return left


def _least(*limits: Budget) -> Budget:
    return Budget(*map(min, zip(*limits, strict=True)))


def _length(per: Duration | None) -> str | None:
    return None if per is None else parse_length("per", per)[0]


def _recorded(state: LedgerState, stream: str) -> Budget:
    return _least(*(state.limit(stream, per) for per in (None, *state.lengths())))


def _renewing(state: LedgerState, stream: str, region: Region) -> Iterator[tuple[str, Budget, Period, int]]:
    for length in state.lengths():
        bound, per = state.limit(stream, length), state.odometer.renewal(stream, length)
        if per is not None and min(bound) < math.inf:
            for number in sorted(state.odometer.met(stream, per, region)):
                yield length, bound, per, number


def _by_period(state: LedgerState, stream: str, length: str) -> dict[str | None, Budget]:
    odometer = state.odometer
    if (per := odometer.renewal(stream, length)) is None:
        return {}
    numbers = odometer.released(stream, per)
    losses = odometer.of_person_by_period(stream, per, numbers | odometer.fullest(stream, per))
    costs: dict[str | None, Budget] = {
        shown_time(per.edge(number), per.time_zone): rounded(losses.pop(number)) for number in sorted(numbers)
    }
    others = [rounded(loss) for loss in losses.values()]
    return costs | {None: max(others)} if max(others, default=Budget(0.0, 0.0)) > (0.0, 0.0) else costs


def in_words(loss: Guarantee | Budget) -> str:
    """Finite amounts as text, with all digits."""
    if isinstance(loss, Budget):
        named = loss._asdict()
        return ", ".join(f"{name} = {amount!r}" for name, amount in named.items() if amount < math.inf) or "none"
    others = {"delta": loss.delta or math.inf, "rho": loss.rho}
    said = [f"{name} = {amount!r}" for name, amount in others.items() if amount < math.inf]
    return ", ".join([f"epsilon = {loss.epsilon!r}", *said])


def _refuse_noise(state: LedgerState, wanted: Entry) -> None:
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
    """Sets budget aside for one release, ``entry``, by :meth:`Ledger.reserve`.

    Examples
    --------
    >>> import tempfile, fastdp
    >>> ledger = fastdp.Ledger(tempfile.mkdtemp() + "/budget")
    >>> half = fastdp.Guarantee(0.5)
    >>> with ledger.reserve(half, stream="meter 17") as reservation:
    ...     reservation.entry.state
    'reserved'
    >>> reservation.entry.state
    'spent'
    >>> ledger.close()
    """

    def __init__(self, ledger: Ledger, made: Entry, cancel_on: tuple[type[Exception], ...] = ()) -> None:
        self._ledger = ledger
        self._cancel_on = cancel_on
        self.entry = made

    def commit(self, stop: int | None = None) -> Entry:
        """Record that the release has happened; from `stop` on, within the reservation, no position was read."""
        self.keep()
        self.entry = self._ledger._end(self.entry, "commit", stop)
        return self.entry

    def cancel(self) -> Entry:
        """Record that nothing was or will be released; the budget is free."""
        self.entry = self._ledger._end(self.entry, "cancel")
        return self.entry

    def keep(self) -> None:
        """Declare that a release begins: no error frees the budget."""
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
