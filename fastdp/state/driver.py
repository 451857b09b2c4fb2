"""The driver of online machines owns key, state and journal.

No output returns before its state is recorded in a kept file.
"""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import os
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any, ClassVar, Generic, Self, TypeAlias, TypeVar, overload

import numpy as np

from fastdp import validation
from fastdp._version import __version__
from fastdp.errors import DataError, ParameterError, StateError, argument
from fastdp.guarantee import Guaranteed
from fastdp.kinds import Array, Json
from fastdp.noise.canonical import check_rule, rule_of
from fastdp.noise.key import Key, repeating
from fastdp.record import Keyed, values_of
from fastdp.state import codec
from fastdp.state.codec import Packed, content_of, decode_errors, key_of
from fastdp.state.machine import Batch, CallGuard, Machine, Output, Record, single_caller
from fastdp.state.state_file import HEADER, Seal, StateFile, stamp_of

S = TypeVar("S")
#: A machine, with the parameters of its own class.
AnyMachine: TypeAlias = Any
#: Public numbers only: thresholds, counts of values and blocks, paths.
LOG = logging.getLogger("fastdp")

# The file that a publisher keeps, as a journal.

#: A batch as its fingerprint takes it.
Chunk = Array


def as_one(*parts: Array | bytes) -> Chunk:
    """A batch as a chunk of one entry."""
    digest = hashlib.blake2b()
    for part in parts:
        raw = part if isinstance(part, bytes) else np.ascontiguousarray(part).tobytes()
        digest.update(len(raw).to_bytes(8, "little") + raw)
    return np.frombuffer(digest.digest(), f"V{digest.digest_size}")


@dataclass(frozen=True)
class Replay:
    """Record of a batch: number of entries, and chained fingerprint."""

    count: int
    digest: str

    def __post_init__(self) -> None:
        codec.require_int(self.count)
        bytes.fromhex(self.digest)

    @classmethod
    def of(cls, chunk: Chunk, key: Key, before: str = "") -> Replay:
        fingerprint = hashlib.blake2b(bytes.fromhex(before), key=key.reveal(), person=b"fastdp replay 1")
        fingerprint.update(np.ascontiguousarray(chunk).tobytes())
        return cls(chunk.size, fingerprint.hexdigest())

    def check(self, chunk: Chunk, key: Key, before: str = "") -> None:
        """DataError unless `chunk` begins with the recorded entries."""
        if chunk.size < self.count:
            raise DataError(
                f"chunk has {chunk.size} values: expected at least the {self.count} values that the state file "
                "recorded last, in one call (replay)"
            )
        if Replay.of(chunk[: self.count], key, before) != self:
            what = "the batch" if chunk.dtype.kind == "V" else f"chunk[:{self.count}]"
            raise DataError(
                f"{what} differs from what the state file recorded last: "
                "publishing altered values with the same noise would reveal the difference"
            )


#: Records after a state, and bytes of the file, beyond which it is written again.
MAX_RECORDS, SPARE_BYTES = 512, 2**22


class Journal:
    """The file that a publisher keeps, and the packed state recorded `last`."""

    def __init__(self, file: StateFile | None = None, stamp: bytes = b"", last: Packed | None = None) -> None:
        #: How each file was left (:meth:`fastdp.state.state_file.StateFile.stamp`), also by a `keep` that failed.
        self._stamps: dict[str, bytes] = {} if file is None else {file.real: stamp}
        self.kept, self.last = file, last
        #: Of the kept file: whether records may be appended to it, how many there are, its bytes,
        #: those of a state with a log that it begins with, and its largest content besides a log.
        self._appends, self._records, self._end, self._whole, self._base = False, 0, 0, 0, 0

    def is_current(self, file: StateFile, consumed: int) -> bool:
        """True if the kept file has this state; StateError for another key or writer."""
        if self.kept is None:
            return False
        if file.seal.key != self.kept.seal.key:
            file.seal.require_protection(self._stamps.get(file.real, b"")[: HEADER.size], file.name)
            raise StateError(f"{file.name}: expected the key under which this publisher keeps it")
        if self.last is None or self.last["n_seen"] != consumed:
            return False
        with file.locked():
            self._found(file)
        return True

    def wrote(self, file: StateFile) -> bool:
        return file.real in self._stamps

    def write_state(self, file: StateFile, content: Json) -> None:
        payload = codec.encode(content)
        with file.locked():
            known = self._found(file)
            # Until the folder is synced too, the next record is a complete file.
            self._appends = False
            file.write(payload, known)
            # The file may be ahead of the publisher now, so that a further call must not leave it alone.
            self.last = None
            stamp = file.stamp()
            assert stamp is not None  # noqa: S101 - it was just written, under the lock
            self._stamps[file.real] = stamp
            file.sync_folder()
            self._records, self._end = 0, int.from_bytes(stamp[HEADER.size : HEADER.size + 8], "big")
            self._whole = self._end if "log" in content else 0
            self._base = len(payload) - _size_of(content.get("log", ()))
            self.last, self._appends = content["now"], True

    def record(
        self,
        content: Callable[[str], Json],
        record: Record,
        replay: Replay,
        drawn: Mapping[str, codec.JsonValue],
        before: Packed,
    ) -> None:
        """Record a batch's fingerprint and the state after it in the kept file.

        `content(path)`: a complete file's content; `drawn`: draws that a replay must not repeat; `before`: packed
        state before the batch.
        """
        file = self.kept
        assert file is not None  # noqa: S101 - the caller has looked
        now, added, rewrite = record
        chunk = {"count": replay.count, "digest": replay.digest}
        log = {"log": added} if added else {}
        payload = codec.encode({"now": now, "chunk": chunk, "drawn": dict(drawn), **log})
        size = len(payload) - _size_of(added)
        # After an interrupt the file may be ahead: then the state before is another one than it has.
        fits = self._appends and before is self.last
        # A log is written again once it has doubled, so that a call pays for its own rows.
        many = (self._records >= MAX_RECORDS or self._end > SPARE_BYTES) and self._end >= 2 * self._whole
        # A hold-out that is used up does not stay in the file.
        shrunk = self._base > 3 * size + 1024
        if not fits or many or shrunk or rewrite:
            whole = {**content(file.real), "now": now, "before": codec.with_drawn(before, drawn), "chunk": chunk}
            if "log" in whole:
                whole |= {"log": [*whole["log"], *added], "fresh": len(added)}
            self.write_state(file, whole)
            return
        with file.locked():
            header = self._found(file)
            assert header is not None  # noqa: S101 - it was written from here
            frame = file.seal.frame(header, self._records + 1, payload)
            self._appends = False
            file.append(frame, self._end)
            # An interrupt before this leaves a file that is longer than known: it is refused, and loaded again.
            self._stamps[file.real] = stamp_of(header, self._end + len(frame), frame)
            self._records, self._end, self.last = self._records + 1, self._end + len(frame), now
            self._base, self._appends = max(self._base, size), True

    def _found(self, file: StateFile) -> bytes | None:
        known, found = self._stamps.get(file.real), file.stamp()
        if file.redirected:
            raise StateError(
                f"{file.name} leads elsewhere than where this publisher keeps it, {file.real!r}: expected its "
                "links as they were, because the file there would stay behind"
            )
        if found is not None and found != known:
            # A file that is no state file has an error of its own.
            file.header()
        if found is not None and known is None:
            raise StateError(
                f"{file.name} exists: expected a new path, or a file of this very publisher (if another run "
                "has just written it, let that one end, then load it or run the command again)"
            )
        if found is None and known is not None:
            raise StateError(f"{file.name} is gone: expected the one this publisher wrote or came from")
        if found != known:
            raise StateError(
                f"{file.name} is not as this publisher left it: another publisher has written it, a stale "
                "copy was put back, or a write was interrupted (then load it again, it is complete)"
            )
        return None if known is None else known[: HEADER.size]


def _size_of(log: Iterable[bytes]) -> int:
    return sum(map(len, log))


def read_file(file: StateFile) -> tuple[Json, bytes]:
    """Content and stamp of an authentic state file."""
    with file.locked() if file.header() is not None else nullcontext():
        frames, stamp = file.open()
    return content_of(frames, file.name), stamp


class Publisher(Generic[S]):
    """Drives a machine online, and keeps its state.

    Parameters
    ----------
    machine : Machine
        The mechanism.
    seed : int or str, optional
        Simulation: noise that anyone can reproduce.
    key : Key or 32 bytes, optional
        A secret of your own; by default the operating system's.

    Notes
    -----
    A copy has the same state and another key.  Pickling is refused, except for collectors and servers of the local
    model, whose state is public.

    Examples
    --------
    >>> import copy, fastdp
    >>> publisher = fastdp.Adaptive(1.0, bound=44, seed=1)
    >>> isinstance(publisher, fastdp.state.Publisher)
    True
    >>> copy.copy(publisher).machine == publisher.machine
    True
    """

    #: The class of machine that a subclass drives, by which it reads state.
    _MACHINE: ClassVar[AnyMachine] = None
    #: Whether the state is no secret, as there is no noise to repeat: forks and pickles harm nothing.
    _PUBLIC: ClassVar[bool] = False
    _key: Key
    _state: S

    def __init__(self, machine: Machine[S], *, seed: int | str | None = None, key: Key | bytes | None = None) -> None:
        given: Any = machine
        accepted = isinstance(given, Machine) and dataclasses.is_dataclass(given)
        if not accepted:
            wanted = "expected a fastdp.state.Machine that is a dataclass"
            raise ParameterError(f"machine = {validation.shown(given)}: {wanted}")
        self._begin(machine, machine.bind(Key.choose(seed, key)))

    def _begin(self, machine: AnyMachine, key: Key) -> None:
        self._guard = CallGuard(forks=self._PUBLIC)
        self._machine = machine
        self._key = key
        self._journal = Journal()
        #: Rolling digest of all batches consumed while a file was kept.
        self._digest = ""
        self._replay: Replay | None = None
        #: The state that a replay must lead to, and the version of fastdp that recorded it.
        self._destination: tuple[Packed, object] | None = None
        self._copies = 0
        #: Class name in state files: reading a state as a base class does not rename it.
        self._written_as = type(machine if self._MACHINE is None else self).__name__
        self._state = machine.start(key)
        if isinstance(machine, Keyed):
            # A record: its parameters are attributes of the publisher.
            self.__dict__.update(values_of(machine))

    def __repr__(self) -> str:
        # The guarantee; of a machine without one, its public parameters.
        return f"{type(self).__name__}: {self.guarantee if isinstance(self, Guaranteed) else self._machine}"

    @property
    def machine(self) -> Machine[S]:
        """The mechanism with its public parameters."""
        machine: Machine[S] = self._machine
        return machine

    @property
    def state(self) -> S:
        """The present state, secret; do not change it."""
        return self._state

    @property
    def noise_fingerprint(self) -> str | None:
        """Keyed digest of all that determines the noise; a ledger accepts it once.  None for a simulation."""
        return None if self._key.simulated or self._PUBLIC else self._key.fingerprint()

    @property
    def digest(self) -> str:
        """Rolling keyed digest of the input since a file is kept."""
        return self._digest

    # The call.

    @single_caller
    def step(self, *batch: Any) -> Output:
        """Consume one batch and return the machine's output."""
        return self._call(self._machine.read(*batch))

    def _call(self, batch: Batch, *into: object) -> Output:
        return self._take(batch)(*into)

    def _take(self, batch: Batch) -> Any:
        if self._replay is not None:
            self._replay.check(self._chunk(batch), self._key, self._digest)
        before = self._state
        made = self._machine.step(before, batch, self._key)
        if self._journal.kept is None:
            # A replay is due where a file is kept only.
            self._state = made.state
            if made.finish is not None:
                made.finish()
        else:
            state = self._machine.settled(made.state)
            digest = self._record(batch, state, made.drawn)
            # One step: an interrupt leaves the batch consumed or not, never half of it.
            self.__dict__.update(_state=state, _replay=None, _digest=digest)
        if LOG.isEnabledFor(logging.INFO):
            for level, message in self._machine.log_messages(before, self._state):
                LOG.log(level, "%s: %s", self._written_as, message)
        return made.emit

    @overload
    def stream(self, batches: AsyncIterable[Batch]) -> AsyncIterator[Output]: ...
    @overload
    def stream(self, batches: Iterable[Batch]) -> Iterator[Output]: ...
    def stream(self, batches: object) -> object:
        """Output of :meth:`step` for each batch of an iterable, consumed when its output is requested.

        `batches`, async or not, are chunks, values, or tuples of arguments; else ParameterError.  After a DataError,
        whose batch is not consumed, continue with a new call.
        """
        if isinstance(batches, AsyncIterable):
            return self._stream_async(batches)
        if not isinstance(batches, Iterable) or isinstance(batches, (str, bytes, Mapping)):
            raise ParameterError(
                f"batches is a {type(batches).__name__}: expected an iterable of chunks or values, or an async one"
            )
        return map(self._one, batches)

    async def _stream_async(self, batches: AsyncIterable[Batch]) -> AsyncIterator[Output]:
        async for batch in batches:
            yield self._one(batch)

    def _one(self, batch: Batch) -> Output:
        if not self._machine.SPLITS:
            return self.step(*batch) if isinstance(batch, tuple) else self.step(batch)
        single = isinstance(batch, Real) or getattr(batch, "ndim", 1) == 0
        return self.step(np.reshape(batch, 1) if single else batch)

    def _chunk(self, batch: Batch) -> Chunk:
        parts = self._machine.parts(batch)
        return parts[0] if self._machine.SPLITS else as_one(*parts)

    def _record(self, batch: Batch, after: S, drawn: Mapping[str, codec.JsonValue]) -> str:
        machine = self._machine
        consumed = machine.consumed(self._state)
        if machine.consumed(after) == consumed:
            return self._digest
        chunk, record = self._chunk(batch), machine.record(self._state, after)
        if self._replay is not None:
            self._check_destination(batch, chunk, _with_log(record.now, record.added), self._replay.count)
        last = self._journal.last
        if last is None or last["n_seen"] != consumed:
            last = _without_log(machine.pack(self._state))
        replay = Replay.of(chunk, self._key, self._digest)
        self._journal.record(self._content, record, replay, drawn, last)
        return replay.digest

    def _check_destination(self, batch: Batch, chunk: Chunk, now: Packed, count: int) -> None:
        assert self._destination is not None  # noqa: S101 - it came with the replay
        recorded, writer = self._destination
        if chunk.size > count:
            with repeating():
                first = self._machine.first(batch, count)
                now = self._machine.pack(self._machine.step(self._state, first, self._key).state)
        if codec.decode(codec.encode(now)) != recorded:
            raise StateError(
                f"the replay leads to another position than the state file recorded (by fastdp {writer}, this is "
                f"{__version__}): expected the fastdp that wrote it, because the same noise would meet other sums"
            )

    # The state as a value.

    @single_caller
    def to_bytes(self, key: bytes | str | None = None) -> bytes:
        """Return the state as bytes for :meth:`from_bytes`.

        Continue with these bytes or with this publisher, not both.

        Parameters
        ----------
        key : 32 bytes or passphrase, optional
            Encrypts and authenticates (AES-256-GCM).  Without it the bytes reveal hold-out, exact sums and noise, and
            so, with outputs, the data.
        """
        self._refuse_replay("to_bytes")
        return Seal(key).pack(codec.encode(self._content(None)))[1]

    @classmethod
    @validation.plain
    def from_bytes(cls, state: bytes, key: bytes | str | None = None, *, moved: bool = False, **own: object) -> Self:
        """Restore a publisher from :meth:`to_bytes`.

        Parameters
        ----------
        state : bytes
            Of :meth:`to_bytes`.
        key : 32 bytes or passphrase, optional
            As given there.
        moved : bool
            True: the bytes of a kept file that no process continues.
        own : components, optional
            Those that bytes cannot hold, such as a selector; for ``Publisher`` ``machine``, a class.

        Raises
        ------
        StateError
            If the bytes are damaged, of another version or class, or the key is wrong.
        """
        content = content_of(Seal(key).open(bytes(state), "state").frames, "state")
        if content["home"] is not None and not moved:
            raise StateError(
                "the bytes are of a kept file, whose publisher may go on: expected those of to_bytes() "
                f"(if it does not: {argument(moved=True)})"
            )
        return cls._from_content(content, "state", replay=False, own=own)

    # State files.

    @single_caller
    def keep(self, path: str | os.PathLike[str], key: bytes | str | None = None) -> None:
        """Record the state in a file before each call returns (write-ahead).

        If a write fails, the call raises and consumes nothing.

        Parameters
        ----------
        path : path
            New, or the file of this publisher; replaced atomically, owner-only.
        key : 32 bytes or passphrase, optional
            As for :meth:`to_bytes`.

        Raises
        ------
        StateError
            If the file is another publisher's, cannot be written, or has another key; for a second path.
        """
        file = StateFile(path, key)
        self._refuse_replay("keep")
        kept = self._journal.kept
        if kept is not None and kept.real != file.real:
            raise StateError(
                f"keep({os.fspath(path)!r}) on a publisher that keeps {os.fspath(kept.path)!r}: expected "
                f"that path (to change it, stop, move the file, and load it with {argument(moved=True)})"
            )
        try:
            # A current file is left alone: written again, it would lose the last call.
            if not self._journal.is_current(file, self._machine.consumed(self._state)):
                self._journal.write_state(file, self._content(file.real))
        except BaseException as error:
            # A file that says that it is kept must stay kept: a written one, or one that an interrupt may have left.
            left = not isinstance(error, Exception) or (kept is None and self._journal.wrote(file))
            self._journal.kept = file if left else kept
            raise
        self._journal.kept = file
        LOG.info(
            "%s: state kept in %s, %d consumed", self._written_as, file.name, self._machine.consumed(self._state)
        )

    @classmethod
    @validation.plain
    def load(
        cls,
        path: str | os.PathLike[str],
        key: bytes | str | None = None,
        *,
        replay: bool = False,
        moved: bool = False,
        **own: object,
    ) -> Self:
        """Continue from a kept file, and keep it.

        Parameters
        ----------
        path, key
            As given to :meth:`keep`.
        replay : bool
            True: call again with the last recorded call's values, all in one call, because its outputs were lost;
            others are refused.
        moved : bool
            True: the file was moved here, and no process continues it elsewhere.
        own : components, optional
            As for :meth:`from_bytes`.

        Raises
        ------
        StateError
            As :meth:`from_bytes`; also for a missing file, a copy, or bytes of :meth:`to_bytes`.
        """
        file = StateFile(path, key)
        content, stamp = read_file(file)
        publisher = cls._from_content(content, file.name, replay=replay, own=own)
        home = content["home"]
        if home is None:
            raise StateError(f"{file.name} holds bytes of to_bytes(): expected a kept file; from_bytes reads it")
        if home != repr(file.real) and not moved:
            raise StateError(
                f"{file.name} is a copy of {home}, where it was kept: expected it there, "
                "because two copies would publish two streams under one noise (if it was moved here: "
                f"{argument(moved=True)})"
            )
        saved = content["before" if replay else "now"]
        publisher._journal = Journal(file, stamp, saved)
        return publisher

    @classmethod
    def _from_content(cls, content: Json, name: str, *, replay: bool, own: Mapping[str, object]) -> Self:
        parts: dict[str, Any] = dict(own)
        kind = parts.pop("machine", cls._MACHINE) if cls._MACHINE is None else cls._MACHINE
        writer = content["fastdp"]
        with decode_errors(name, writer):
            fits = cls._fits(content, kind)
        if not fits:
            shown = validation.shown(content["class"]).strip("'")
            raise StateError(f"{name} holds a {shown}: expected a {(kind if cls._MACHINE is None else cls).__name__}")
        if replay and (content["before"] is None or content["home"] is None):
            raise StateError(f"{name} records no chunk to replay: expected replay=False")
        with decode_errors(name, writer):
            key = key_of(content)
            check_rule(kind, content["rule"])
            publisher = cls._of(kind.from_description(content["composition"], **parts), key)
            log, fresh = content.get("log", []), content.get("fresh", 0)
            whole = log[: len(log) - fresh] if replay else log
            packed = _with_log(content["before" if replay else "now"], whole)
            publisher._state = publisher._machine.unpack(packed, key)
            chunk = None if content["chunk"] is None else Replay(**content["chunk"])
            publisher._written_as = content["class"]
            publisher._replay = chunk if replay else None
            came = _with_log(content["now"], log[len(log) - fresh :])
            publisher._destination = (came, writer) if replay else None
            publisher._digest = chunk.digest if chunk and not replay else content["digest"]
            bytes.fromhex(publisher._digest)
        return publisher

    @classmethod
    def _fits(cls, content: Json, kind: AnyMachine) -> bool:
        if cls._MACHINE is None and kind is None:
            raise StateError("machine = None: expected the class of machine that the state is of")
        return bool(content["class"] == (cls.__name__ if cls._MACHINE is not None else kind.__name__))

    @classmethod
    def _of(cls, machine: AnyMachine, key: Key) -> Self:
        publisher = object.__new__(cls)
        publisher._begin(machine, key)
        return publisher

    def _fresh(self, key: Key) -> Self:
        return self._of(self._machine, key)

    def _content(self, home: str | None) -> Json:
        now = self._machine.pack(self._state)
        return {
            "class": self._written_as,
            "rule": rule_of(self._machine),
            "fastdp": __version__,
            "composition": self._description,
            "secret": self._key.reveal().hex(),
            "member": self._key.member,
            "family": self._key.family.hex(),
            "noise": int(self._key.binding),
            "simulated": self._key.simulated,
            "home": None if home is None else repr(home),
            "now": _without_log(now),
            "before": None,
            "digest": self._digest,
            "chunk": None,
            **({"log": now["log"]} if "log" in now else {}),
        }

    @cached_property
    def _description(self) -> Json:
        # Once: a domain may be a map of a country.
        described: Json = self._machine.describe()
        return described

    def _refuse_replay(self, call: str) -> None:
        # Altered values would pass.
        if self._replay is not None:
            raise StateError(f"{call}() on a publisher that waits for a replay: expected the recorded chunk first")

    # Copies: never the same noise twice.

    def __copy__(self) -> Self:
        return self._rekeyed_copy()

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self._rekeyed_copy()

    @single_caller
    def _rekeyed_copy(self) -> Self:
        self._refuse_replay("copy")
        self._copies += 1
        key = self._key.derive("copy", self._copies) if self._key.simulated else Key.choose(None, None)
        twin = self._fresh(key)
        twin._state = self._machine.rekeyed(self._state, key)
        return twin

    def __reduce__(self) -> tuple[object, ...]:
        if self._PUBLIC:
            return self._unpickled, (self._machine, self._machine.pack(self._state))
        raise StateError(
            f"a {type(self).__name__} cannot be pickled: the noise key would be neither encrypted nor owner-only; "
            "use to_bytes(key) and from_bytes(state, key)"
        )

    @classmethod
    def _unpickled(cls, machine: Machine[S], packed: Packed) -> Self:
        twin = cls._of(machine, Key.choose(None, None))
        twin._state = machine.unpack(packed, twin._key)
        return twin


def _with_log(packed: Packed, log: list[bytes]) -> Packed:
    return {**packed, "log": log} if log else packed


def _without_log(packed: Packed) -> Packed:
    return {name: value for name, value in packed.items() if name != "log"}
