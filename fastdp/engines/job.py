"""Mechanism, secret and state format with which workers continue streams (``docs/engines.md``)."""

from __future__ import annotations

import os
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from fastdp import validation
from fastdp._lazy import imported
from fastdp.errors import ParameterError
from fastdp.guarantee import Guarantee
from fastdp.kinds import Array, Floats, Indices, Json
from fastdp.ledger import Ledger
from fastdp.noise.chain_keys import bound_distribution
from fastdp.noise.key import KEY_BYTES, Key, is_secret, read_key
from fastdp.state.driver import Publisher
from fastdp.state.machine import Machine
from fastdp.streams.fleet import MACHINES, Fleet
from fastdp.streams.ids import as_ids
from fastdp.streams.stream_machine import Schedule
from fastdp.tables.windows import Windows
from fastdp.tables.windows_machine import WindowsMachine

#: Ids or values of rows.
Column: TypeAlias = Sequence[object] | Array
#: An object of an engine or of Arrow, whose packages publish no types.
Foreign: TypeAlias = Any
#: Id, value, and what is carried along.
Row: TypeAlias = tuple[Foreign, ...]
#: Assumption of a job's guarantee beside that of its windows.
PUBLIC_CLOCK = "the engine's watermark, which closes windows, is public knowledge"
#: Fleets that a worker holds open, so that a state which comes back is not read again.
OPEN_FLEETS = 1024


class Job:
    """One mechanism on many streams under one secret, in engines that store state as bytes.

    Parameters
    ----------
    parameters : Publisher or Machine
        As for :class:`fastdp.Fleet`, with noise bound to its values (:class:`fastdp.Adaptive`,
        :class:`fastdp.perturbers.Flat`, :class:`fastdp.counters.RunningCounts`): engines replay, perhaps altered.
    name : str
        Public; jobs under one secret need different names.
    secret : str or callable
        Location of 32 secret bytes: ``"file:PATH"`` (owner-only, raw or hexadecimal), ``"env:NAME"`` (64 hexadecimal
        digits), or a function that returns them.  Bytes are refused, as engines log arguments.

    Notes
    -----
    For any workers and batches, stream ``id`` equals that of a :class:`fastdp.Fleet` with ``key=job.key``. A pickled
    job holds the secret's location, a sealed state no secret.

    Privacy: one stream's for each value.  Equal replays give equal output; altered ones cost another release of later
    values (``docs/noise.md``, section 2).

    Examples
    --------
    >>> import fastdp
    >>> job = fastdp.engines.Job(
    ...     fastdp.Adaptive(1.0, bound=44), name="trips",
    ...     secret="env:TRIPS_SECRET",
    ... )
    >>> job.guarantee.epsilon
    1.0
    """

    def __init__(
        self, parameters: Publisher[Any] | Machine[Any], *, name: str, secret: str | Callable[[], bytes]
    ) -> None:
        if type(name) is not str or not name:
            raise ParameterError(f"name = {validation.shown(name)}: expected a text that no other job has")
        known = isinstance(secret, str) and secret.partition(":")[0] in ("file", "env")
        if not (known or callable(secret)):
            raise ParameterError(
                "secret: expected 'file:PATH', 'env:NAME' or a function that gives 32 bytes (what was given is not "
                "shown); the bytes themselves would be shipped and logged with the job"
            )
        self.machine: Machine[Any] = Fleet(parameters, seed=0).machine
        if not _is_bound(self.machine):
            raise ParameterError(
                f"parameters = {validation.shown(self.machine)}: expected a mechanism whose noise is bound to the "
                "values (Adaptive, Flat, RunningCounts, Windows), because an altered replay would meet the same noise"
            )
        if isinstance(self.machine, WindowsMachine) and self.machine.lateness is not None:
            raise ParameterError(
                f"lateness = {self.machine.lateness!r}: expected None in a job, whose clock is the engine's "
                "watermark (a shard's latest row is no common clock)"
            )
        if isinstance(self.machine, WindowsMachine) and not self.machine.adds_up:
            raise ParameterError(
                "statistics: expected counts, sums, means and variances of single windows in a job, because its "
                "shards are added up (quantiles, nunique, reach and a calendar: fastdp.Windows in one process)"
            )
        self.name, self.secret = name, secret

    def __repr__(self) -> str:
        return f"Job(name={self.name!r}, {self.machine!r})"

    def __getstate__(self) -> Json:
        kind = type(self.machine)
        return {"class": kind, "machine": self.machine.describe(), "name": self.name, "secret": self.secret}

    def __setstate__(self, state: Json) -> None:
        self.machine = state["class"].from_description(state["machine"])
        self.name, self.secret = state["name"], state["secret"]

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of all streams for one value, or of all windows for one unit."""
        if not isinstance(self.machine, WindowsMachine):
            return Fleet(self.machine).guarantee
        promised = self.machine.guarantee(Key.choose(None, None))
        return replace(promised, derivation=(*promised.derivation, PUBLIC_CLOCK))

    # Derived on a worker, and never pickled.

    @cached_property
    def _root(self) -> Key:
        return _read(self.secret)

    @cached_property
    def key(self) -> Key:
        """Key from which the streams' keys are derived."""
        return self._root.within("job", self.name)

    @cached_property
    def seal(self) -> bytes:
        """Key under which states are sealed; secret."""
        return self._root.derive("state of a job", self.name).reveal()

    @cached_property
    def _empty(self) -> Fleet:
        return Fleet._of(self.machine, self.key)

    @cached_property
    def _fleets(self) -> OrderedDict[bytes, Fleet]:
        return OrderedDict()

    def fleet(self) -> Fleet:
        """A fleet without streams."""
        if isinstance(self.machine, WindowsMachine):
            raise ParameterError(f"job = {validation.shown(self)}: expected a job of streams; windows have none")
        return self._empty._empty()

    def to_bytes(self, fleet: Fleet) -> bytes:
        """Sealed state of `fleet`."""
        if not isinstance(fleet, Fleet):
            raise ParameterError(f"fleet = {validation.shown(fleet)}: expected a fleet of this job")
        return fleet.to_bytes(self.seal)

    @validation.plain
    def from_bytes(self, state: bytes) -> Fleet:
        """Fleet of a sealed `state`; StateError for another one."""
        return Fleet._opened(state, self.seal, type(self.machine), self._empty)

    def advance(self, state: bytes | None, ids: Column, values: Column) -> tuple[bytes, Indices, Floats]:
        """Publish values of some streams, from state to state, for engines that store bytes.

        Parameters
        ----------
        state : bytes or None
            State of the last call; None before the first.
        ids, values
            As for :meth:`fastdp.Fleet.publish`.

        Returns
        -------
        state : bytes
            Store it before the outputs leave.
        rows, out : int64[m], float64[m]
            Rows that publish, and their values.
        """
        fleet = self.resume(state)
        rows, out = publish(fleet, ids, values)
        return self.suspend(fleet), rows, out

    @validation.plain
    def resume(self, state: bytes | None) -> Fleet:
        """Fleet of `state`: open since :meth:`suspend`, or read; empty for None."""
        if state is None:
            return self.fleet()
        # It moves on, so it is no longer the fleet of these bytes; an error leaves it out.
        left_open = self._fleets.pop(bytes(state), None)
        return self.from_bytes(state) if left_open is None else left_open

    def suspend(self, fleet: Fleet) -> bytes:
        """Sealed state of `fleet`, which stays open."""
        state = self.to_bytes(fleet)
        self._fleets[state] = fleet
        if len(self._fleets) > OPEN_FLEETS:
            self._fleets.popitem(last=False)
        return state

    def register(self, ledger: Ledger, *, stream: str) -> None:
        """Record this job in a ledger, once, before its first start.

        :class:`fastdp.errors.BudgetError` if the ledger holds the same job, or lacks budget; `stream` as for
        :meth:`fastdp.Ledger.spend`.
        """
        validation.part("ledger", ledger, Ledger, "fastdp.ledger")
        machine, made = self.machine, None
        if isinstance(machine, WindowsMachine):
            made = Windows._of(machine, self.key.bind(machine.plan))
        ledger.spend(made or self.fleet(), stream=stream, note=f"job {self.name!r}")


def publish(fleet: Fleet, ids: Column, values: Column) -> tuple[Indices, Floats]:
    """Rows that :meth:`Fleet.publish` publishes, int64[m], and their values."""
    found, out = fleet.publish(ids, values)
    total = len(values)
    if out.size == total:
        return np.arange(total), out
    # Within a call the rows of a stream that publish are its last ones.
    left = Counter(found)
    rows = []
    for row in range(total - 1, -1, -1):
        if left[ids[row]]:
            left[ids[row]] -= 1
            rows.append(row)
    return np.array(rows[::-1], np.int64), out


def key_of(row: Row) -> str:
    """Key of a row's state in an engine, by its id."""
    (found,) = as_ids([row[0]])
    return f"text {found}" if isinstance(found, str) else f"number {found}"


def publish_row(job: Job, state: bytes | None, row: Row) -> tuple[bytes, list[Row]]:
    """State after a row of numbers, and the published row, if any."""
    key, value, *others = row
    many = isinstance(value, (Sequence, np.ndarray)) and not isinstance(value, str)
    values = value if many else [value]
    after, _, out = job.advance(state, [key] * len(values), values)
    published = out.tolist()
    return after, [(key, published if many else published[0], *others)] if published else []


def _read(secret: str | Callable[[], bytes]) -> Key:
    if callable(secret):
        found, place = secret(), "secret(): "
    else:
        kind, _, name = secret.partition(":")
        place = f"secret = {secret!r}: "
        try:
            if kind == "file":
                return read_key(Path(name), "secret: file")
            found = bytes.fromhex(os.environ[name])
        except ParameterError:
            raise
        except (OSError, KeyError, ValueError) as error:
            wanted = "a readable file" if kind == "file" else "64 hexadecimal digits in that variable"
            raise ParameterError(f"{place}expected {wanted} ({type(error).__name__})") from None
    if not is_secret(found):
        raise ParameterError(f"{place}expected {KEY_BYTES} bytes")
    return Key.from_bytes(found)


def engine(extra: str, module: str) -> Foreign:
    """The `module` of an engine; ParameterError with the extra's name."""
    needed = f"fastdp.engines.{extra} needs {module.partition('.')[0]}"
    return imported(module, ParameterError(f"{needed}: expected pip install 'fastdp-streams[{extra}]'"))


def _is_bound(machine: Machine[Any]) -> bool:
    """True if noise is bound to earlier values, as users' own must be."""
    if not isinstance(machine, Schedule):
        return type(machine) in (*MACHINES.values(), WindowsMachine) or not type(machine).__module__.startswith(
            "fastdp."
        )
    composition = machine.composition
    return bound_distribution(composition.perturber, 1, composition.publish_epsilon) is not None
