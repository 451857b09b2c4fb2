"""Windows inside engines: shards hold rows by person; one release adds up their sums (``docs/engines.md``)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import TypeAlias, TypeVar

import numpy as np

from fastdp import validation
from fastdp.data.column import arrow, as_arrow
from fastdp.engines.job import Foreign, Job
from fastdp.errors import DataError, ParameterError, StateError
from fastdp.kinds import Flags, Indices, Instant, Integers, Json
from fastdp.noise.canonical import rule_of
from fastdp.noise.key import Key
from fastdp.state import codec
from fastdp.state.state_file import Seal
from fastdp.streams.fleet import refuse_other
from fastdp.streams.ids import shards_of
from fastdp.tables.columns import Keys, digests_of
from fastdp.tables.online import OnlineKeys
from fastdp.tables.table import Table
from fastdp.tables.windows_machine import WindowsMachine

#: Rows as columns by name: a dict of lists, a data frame.
Columns: TypeAlias = Mapping[str, Foreign]
#: A place, where shares meet, and sealed sums of one window, of one shard or more.
Placed: TypeAlias = Json
#: A released row: window, keys, statistics with their intervals.
Released: TypeAlias = Json
T = TypeVar("T")
log = logging.getLogger("fastdp")
#: Watermarks from here on, in milliseconds, are the end of the input, which is no public time.
END = 2**53
#: Windows that a shard closes at a time, so that their sums fit into memory.
SPAN = 64
#: Parts of private keys, by their digests: public.
KEY_PARTS = 8


def machine_of(job: Job) -> WindowsMachine:
    """The windows of a job; ParameterError if it publishes streams."""
    if not isinstance(job.machine, WindowsMachine):
        raise ParameterError(
            f"job = {validation.shown(job)}: expected Job(fastdp.Windows(...)), or release for streams"
        )
    return job.machine


def names_of(job: Job) -> list[str]:
    """Columns that a row needs: time, keys, values, person."""
    machine = machine_of(job)
    plan = machine.plan
    named = [machine.time.column, *plan.by, *(each.name for each in plan.columns), plan.who]
    return [name for name in dict.fromkeys(named) if name is not None]


def columns_of(job: Job, rows: Sequence[Mapping[str, object]]) -> Columns:
    """Rows as columns; DataError for the first that lacks one."""
    names = names_of(job)
    for i, row in enumerate(rows):
        lacks = [name for name in names if name not in row]
        if lacks:
            raise DataError(f"rows[{i}] has no {lacks[0]!r}: expected {', '.join(names)} in every row")
    return {name: [row[name] for row in rows] for name in names}


def owners(job: Job, rows: Columns, shards: int) -> Indices:
    """Shard of each row: its person's, or any one."""
    machine = machine_of(job)
    who = machine.plan.who
    if who is None:
        return shards_of([str(each) for each in rows[machine.time.column]], shards)
    if not len(rows[who]):
        return np.empty(0, np.int64)
    owned, named = parts_of_persons(as_arrow(rows[who], "persons"), shards)
    if named is not None and not named.all():
        raise DataError(f"persons[{int(np.argmin(named))}] is missing: expected the person of every row")
    return owned


def parts_of_persons(persons: Foreign, parts: int) -> tuple[Indices, Flags | None]:
    """Part of each row's person, and flags of rows with one."""
    digests, named = digests_of(persons)
    return (digests[:, 0].view(np.uint64) % np.uint64(parts)).astype(np.int64), named


def owned(job: Job, rows: Sequence[Mapping[str, object]], shards: int) -> dict[int, int]:
    """Shard of each row by its index, without dropped rows."""
    read = _read(job, rows, lambda columns: owners(job, columns, shards))
    return {place: owner for places, whose in read for place, owner in zip(places, whose.tolist(), strict=True)}


def _read(
    job: Job, rows: Sequence[Mapping[str, object]], call: Callable[[Columns], T]
) -> Iterator[tuple[Sequence[int], T]]:
    """Indices of rows, by parts that are accepted together, with `call`'s answer.

    A row that is not accepted alone is dropped and logged, so that it cannot stop the job.
    """
    waiting: list[Sequence[int]] = [range(len(rows))] if len(rows) else []
    while waiting:
        places = waiting.pop()
        try:
            yield places, call(columns_of(job, [rows[i] for i in places]))
        except (DataError, ParameterError) as error:
            if len(places) == 1:
                log.warning("a row was dropped: %s", error)
                continue
            parts: dict[object, list[int]] = {}
            for i in places:
                parts.setdefault(tuple(map(type, rows[i].values())), []).append(i)
            middle = len(places) // 2
            waiting += parts.values() if len(parts) > 1 else (places[:middle], places[middle:])


class Shard:
    """Shard k of n of a job's windows, `part` = (k, n): open windows' rows, or their sums.

    Parameters
    ----------
    job : Job
        Of a :class:`fastdp.Windows`.
    part : (int, int)
        Its number, and how many there are; public.
    state : bytes, optional
        Of :meth:`to_bytes`; StateError for a damaged or other one.
    """

    def __init__(self, job: Job, part: tuple[int, int], state: bytes | None = None) -> None:
        self._job, self.part, self._machine = job, part, machine_of(job)
        self._key = _key(job)
        if state is None:
            self._state = self._machine.start(self._key)
        else:
            content = _open(job, state, part[1])
            with codec.decode_errors("the state"):
                if content["part"] != part[0]:
                    raise StateError(f"the state is of shard {content['part']}: expected that of {part[0]}")
                self._state = self._machine.unpack(content, self._key)

    def add(self, rows: Columns) -> None:
        """Add rows; those of closed windows are dropped."""
        plan, times = self._machine.plan, rows[self._machine.time.column]
        if not len(times):
            return
        values = {each.name: rows[each.name] for each in plan.columns} or None
        keys = {name: rows[name] for name in plan.by} or None
        persons = None if plan.who is None else rows[plan.who]
        batch = self._machine.read(times, values, keys, persons, None)
        self._state, *_ = self._machine.collect(self._state, batch, self._key)

    def take(self, rows: Sequence[Mapping[str, object]]) -> None:
        for _ in _read(self._job, rows, self.add):
            pass

    def advance(self, to: Instant) -> list[Placed]:
        """Move the clock; return the shard's shares of closed windows."""
        machine, found = self._machine, list[Placed]()
        batch, edge = machine.read(None, None, None, None, to), machine.calendar.edge
        stops = range(self._state.closed + SPAN, machine.calendar.number(batch.to), SPAN)
        for stop in chain(map(edge, stops), [batch.to]):
            first = self._state.closed
            self._state, keys, sums = machine.collect(self._state, batch._replace(to=stop), self._key)
            found += [self._share(first + i, keys, own) for i, own in enumerate(sums.swapaxes(0, 1))]
        return found

    @property
    def next_end(self) -> int:
        """End of the first open window, in milliseconds since 1970, or END."""
        first, closing = self._state.closed, self._machine.closing
        return END if first == closing.stop else -(-closing.calendar.edge(first + 1) // 1000)

    def to_bytes(self) -> bytes:
        return _seal(self._job, self.part[1], {"part": self.part[0], **self._machine.pack(self._state)})

    def _share(self, window: int, keys: Keys, sums: Integers) -> Placed:
        content: Json = {"window": window, "parts": [self.part[0]]}
        if self._machine.private:
            parts = np.where(sums.any(axis=0), keys.words().view(np.uint64) % np.uint64(KEY_PARTS), KEY_PARTS)
            owned = [np.flatnonzero(parts == part) for part in range(KEY_PARTS)]
            names = ([column.to_pylist() for column in keys.entries(own)] for own in owned)
            content["cells"] = [
                [(each, codec.describe(sums[:, own]))] for each, own in zip(names, owned, strict=True)
            ]
        else:
            content["sums"] = codec.describe(sums[:, None])
        return {"place": window, "share": _seal(self._job, self.part[1], content)}


def merge(job: Job, shards: int, state: bytes | None, *shares: bytes) -> tuple[bytes | None, list[Placed | Released]]:
    """State of a place with more shares (None: it is done), and the rows that are due.

    A place is a window; with private keys its shares then go to parts of the keys, the next places.  A repeated share
    changes nothing.
    """
    machine, opened = machine_of(job), [_open(job, each, shards) for each in (state, *shares) if each is not None]
    have = opened[0]
    if "part" in have:
        return _appear(job, shards, opened)
    with codec.decode_errors("the state"):
        for new in opened[1:]:
            if have["window"] != new["window"]:
                raise StateError(f"a share of window {new['window']}: expected one of window {have['window']}")
            again = set(new["parts"]) & set(have["parts"])
            if again and again != set(new["parts"]):
                raise StateError(f"a share of shards {new['parts']}: expected none of {sorted(again)}, or all again")
            if again:
                continue
            have = {**have, "parts": sorted([*have["parts"], *new["parts"]])}
            if machine.private:
                have["cells"] = [a + b for a, b in zip(have["cells"], new["cells"], strict=True)]
            else:
                have["sums"] = codec.describe(sum(codec.restore(Integers, each["sums"]) for each in (have, new)))
    if len(have["parts"]) < shards:
        return _seal(job, shards, have), []
    if not machine.private:
        sums = codec.restore(Integers, have["sums"])
        return None, rows_of(Table(machine.publish(have["window"], sums, _key(job))))
    found = [{"window": have["window"], "part": part, "cells": cells} for part, cells in enumerate(have["cells"])]
    return None, [{"place": each["part"], "share": _seal(job, shards, each)} for each in found]


def _appear(job: Job, shards: int, opened: Sequence[Json]) -> tuple[bytes, list[Released]]:
    machine, out = machine_of(job), list[Released]()
    begun = {"part": opened[0]["part"], "next": machine.plan.start or 0, "keys": [], "waiting": []}
    have = opened[0] if "next" in opened[0] else begun
    with codec.decode_errors("the state"):
        if len({each["part"] for each in opened}) > 1:
            raise StateError(f"shares of several parts of the keys: expected those of part {have['part']}")
        # The first share of a window counts.
        shares = (*(each for each in reversed(opened) if each is not have), *have["waiting"])
        waiting = {each["window"]: each for each in shares if each["window"] >= have["next"]}
        keys = none = OnlineKeys.none(machine.plan.by)
        for part in have["keys"]:
            keys = keys.with_part(part)
    while have["next"] in waiting:
        cells = [(names, codec.restore(Integers, sums)) for names, sums in waiting.pop(have["next"])["cells"]]
        keys, released = machine.appear(keys, have["next"], cells, _key(job))
        out += rows_of(Table(released))
        have["next"] += 1
    have |= {"keys": keys.parts(none), "waiting": list(waiting.values())}
    return _seal(job, shards, have), out


def rows_of(table: Table) -> list[Released]:
    """Rows of a released table, without revised numbers."""
    rows: list[Released] = _published_columns(table).to_pylist()
    return rows


def schema_of(job: Job) -> Foreign:
    """Arrow schema of released rows."""
    machine = machine_of(job)
    found = _published_columns(Table(machine.publish(0, machine.no_sums, Key.from_seed(0).bind(machine.plan)))).schema
    # Private keys are texts, of which there are none yet.
    return arrow.schema([(each.name, "large_string" if each.type == "null" else each.type) for each in found])


def _published_columns(table: Table) -> Foreign:
    frame = table.arrow
    return frame.select([name for name in frame.column_names if "revised" not in name]).replace_schema_metadata()


def clock(job: Job, watermark: int) -> datetime | None:
    """The engine's watermark as a time; None at the input's end."""
    if abs(watermark) >= END:
        return None
    moment = datetime.fromtimestamp(watermark / 1000, UTC)
    return moment if machine_of(job).calendar.zone is not None else moment.replace(tzinfo=None)


def _key(job: Job) -> Key:
    return job.key.bind(machine_of(job).plan)


def _described(job: Job, shards: int) -> Json:
    machine = machine_of(job)
    return {**machine.describe(), "rule": rule_of(machine), "shards": shards}


def _seal(job: Job, shards: int, content: Json) -> bytes:
    return Seal(job.seal).pack(codec.encode({**content, "windows": _described(job, shards)}))[1]


def _open(job: Job, state: bytes, shards: int) -> Json:
    opened = Seal(job.seal).open(bytes(state), "the state")
    with codec.decode_errors("the state"):
        content: Json = codec.decode(opened.frames[0])
        refuse_other(content.pop("windows"), codec.decode(codec.encode(_described(job, shards))))
    return content
