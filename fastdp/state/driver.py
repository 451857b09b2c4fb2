"""The one driver of online machines: it owns key, state and journal.

A call is: read, step, record, take, emit.  A batch is consumed or not, and no output returns before its position is
recorded.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping
from numbers import Real
from typing import Any, ClassVar, Generic, Self, TypeAlias, TypeVar, overload

import numpy as np

from fastdp import validation
from fastdp._version import __version__
from fastdp.errors import ParameterError, StateError
from fastdp.kinds import Json
from fastdp.noise.canonical import check_rule, rule_of
from fastdp.noise.key import Key, repeating
from fastdp.state import codec, journal
from fastdp.state.codec import Packed, as_text, content_of, decode_errors, key_of
from fastdp.state.journal import Chunk, Journal, Replay, as_one
from fastdp.state.machine import Batch, CallGuard, Machine, Output, check_is_machine, single_caller
from fastdp.state.sealed_file import Seal, StateFile

S = TypeVar("S")
#: A machine, with the parameters of its own class.
AnyMachine: TypeAlias = Any
#: Public numbers only: thresholds, counts of values and blocks, paths.
LOG = logging.getLogger("fastdp")


class Publisher(Generic[S]):
    """Drives a machine online, with everything that its state needs.

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
    Copies have the same state and a key of their own; pickles are refused, except of collectors, whose state is
    public.
    """

    #: The class of machine that a subclass drives, by which it reads state.
    _MACHINE: ClassVar[AnyMachine] = None
    #: Whether the state is no secret, as there is no noise to repeat: forks and pickles harm nothing.
    _PUBLIC: ClassVar[bool] = False
    _key: Key
    _state: S

    def __init__(self, machine: Machine[S], *, seed: int | str | None = None, key: Key | bytes | None = None) -> None:
        check_is_machine(machine)
        self._begin(machine, machine.bind(Key.choose(seed, key)))

    def _begin(self, machine: AnyMachine, key: Key) -> None:
        """Set the state before the first value."""
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

    def __repr__(self) -> str:
        # The guarantee; of a machine without one, its public parameters.
        return f"{type(self).__name__}: {getattr(self, 'guarantee', self._machine)}"

    @property
    def machine(self) -> Machine[S]:
        """The mechanism, with its public parameters."""
        machine: Machine[S] = self._machine
        return machine

    @property
    def state(self) -> S:
        """The present state, secret; do not change it."""
        return self._state

    @property
    def noise_fingerprint(self) -> str | None:
        """Keyed digest of all that determines the noise; None for a simulation.  A ledger refuses a second."""
        return None if self._key.simulated or self._PUBLIC else self._key.fingerprint()

    @property
    def digest(self) -> str:
        """Rolling keyed digest of the input while a file was kept."""
        return self._digest

    # The call.

    @single_caller
    def step(self, *batch: Any) -> Output:
        """Consume one batch and return the machine's output for it."""
        return self._call(self._machine.read(*batch))

    def _call(self, batch: Batch, *into: object) -> Output:
        return self._take(batch)(*into)

    def _take(self, batch: Batch) -> Any:
        """Step, record, take the new state and finish; return :attr:`Transition.emit`."""
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
            self._log(before)
        return made.emit

    def _log(self, before: S) -> None:
        for level, message in self._machine.log_messages(before, self._state):
            LOG.log(level, "%s: %s", self._written_as, message)

    @overload
    def stream(self, batches: AsyncIterable[Batch]) -> AsyncIterator[Output]: ...
    @overload
    def stream(self, batches: Iterable[Batch]) -> Iterator[Output]: ...
    def stream(self, batches: object) -> object:
        """Output of :meth:`step` for each batch of an iterable, consumed when its output is requested.

        `batches`, async or not: chunks, or single values; a tuple for several arguments; else ParameterError.  After
        DataError for a batch, which is not consumed, continue with a new call.
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
        """Step by one item of a stream."""
        if not self._machine.SPLITS:
            return self.step(*batch) if isinstance(batch, tuple) else self.step(batch)
        single = isinstance(batch, Real) or getattr(batch, "ndim", 1) == 0
        return self.step(np.reshape(batch, 1) if single else batch)

    def _chunk(self, batch: Batch) -> Chunk:
        """Input for its fingerprint: values, or one entry for the batch."""
        parts = self._machine.parts(batch)
        return parts[0] if self._machine.SPLITS else as_one(*parts)

    def _record(self, batch: Batch, after: S, drawn: Mapping[str, codec.JsonValue]) -> str:
        """Record a batch before it is consumed; return the new digest."""
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
        """StateError if a replay leads to another state than recorded."""
        assert self._destination is not None  # noqa: S101 - it came with the replay
        recorded, writer = self._destination
        if chunk.size > count:
            with repeating():
                first = self._machine.first(batch, count)
                now = self._machine.pack(self._machine.step(self._state, first, self._key).state)
        if not codec.same(json.loads(json.dumps(now)), recorded):
            raise StateError(
                f"the replay leads to another position than the state file recorded (by fastdp {writer}, this is "
                f"{__version__}): expected the fastdp that wrote it, because the same noise would meet other sums"
            )

    # The state as a value.

    @single_caller
    def to_bytes(self, key: bytes | str | None = None) -> bytes:
        """Return everything needed to continue elsewhere, as bytes for :meth:`from_bytes`.

        Continue from these bytes or this publisher, not both: other values would meet the same noise.

        Parameters
        ----------
        key : 32 bytes or passphrase, optional
            Encrypts and authenticates (AES-256-GCM).  Without it the bytes reveal noise (so, with outputs, the data),
            hold-out and exact sums.
        """
        self._refuse_replay("to_bytes")
        return Seal(key).pack(as_text(self._content(None)))[1]

    @classmethod
    @validation.plain
    def from_bytes(cls, state: bytes, key: bytes | str | None = None, *, moved: bool = False, **own: object) -> Self:
        """Publisher that :meth:`to_bytes` described.

        Parameters
        ----------
        state : bytes
            Of :meth:`to_bytes`, or of a saved file.
        key : 32 bytes or passphrase, optional
            As given there.
        moved : bool
            True: the bytes of a kept file that no process continues.
        own : components, optional
            Those that bytes cannot hold, such as a selector; for ``Publisher`` itself ``machine``, a class.

        Raises
        ------
        StateError
            If the bytes are truncated, altered, of another version or class, or the key is wrong.
        """
        content = content_of(Seal(key).open(bytes(state), "state").frames, "state")
        if content["home"] is not None and not moved:
            raise StateError(
                "the bytes are of a kept file, whose publisher may go on: expected those of to_bytes() or save() "
                "(if it does not: moved=True)"
            )
        return cls._from_content(content, "state", replay=False, own=own)

    # State files.

    @single_caller
    def save(self, path: str | os.PathLike[str], key: bytes | str | None = None) -> None:
        """Write :meth:`to_bytes` to a file, once; :meth:`keep` also prevents reuse of its noise on other values.

        Parameters
        ----------
        path : path
            New, or a file of this publisher; replaced atomically, owner-only.
        key : 32 bytes or passphrase, optional
            As for :meth:`to_bytes`.

        Raises
        ------
        StateError
            If the file is another publisher's, cannot be written, or is kept under another key.
        """
        file = StateFile(path, key)
        self._refuse_replay("save")
        self._write(file, kept=self._journal.keeps(file))

    @single_caller
    def keep(self, path: str | os.PathLike[str], key: bytes | str | None = None) -> None:
        """From now on, record the state in a file before a call returns (write-ahead); arguments as of :meth:`save`.

        If a write fails, the call raises and consumes nothing.  A second path is refused: the first file would give
        its noise to other values.
        """
        file = StateFile(path, key)
        self._refuse_replay("keep")
        kept = self._journal.kept
        if kept is not None and not self._journal.keeps(file):
            raise StateError(
                f"keep({os.fspath(path)!r}) on a publisher that keeps {os.fspath(kept.path)!r}: expected "
                "that path (to change it, stop, move the file, and load it with moved=True)"
            )
        try:
            self._write(file, kept=True)
        except BaseException as error:
            # A file that says that it is kept must stay kept, and an interrupt may have left one.
            self._journal.kept = kept if isinstance(error, Exception) else file
            raise
        self._journal.kept = file
        LOG.info(
            "%s: state kept in %s, %d consumed", self._written_as, file.name, self._machine.consumed(self._state)
        )

    def _write(self, file: StateFile, *, kept: bool) -> None:
        # A current file is left alone: written again, it would lose the last call.
        if not self._journal.is_current(file, self._machine.consumed(self._state)):
            self._journal.write(file, self._content(file.real if kept else None))

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
        """Publisher that continues from a saved one; from a kept file, it keeps that file too.

        Parameters
        ----------
        path, key
            As given to :meth:`save` or :meth:`keep`.
        replay : bool
            True: repeat the last recorded call, whose outputs were lost; the same values must come in one call, are
            checked by their fingerprint, and give the same outputs.
        moved : bool
            True: the kept file was moved here, and no process continues it elsewhere.  Otherwise a copy is refused,
            because two would publish two streams under one noise.
        own : components, optional
            As for :meth:`from_bytes`.

        Raises
        ------
        StateError
            As :meth:`from_bytes`; also for a missing file or a copy.
        """
        file = StateFile(path, key)
        content, stamp = journal.read(file)
        publisher = cls._from_content(content, file.name, replay=replay, own=own)
        home = content["home"]
        if home not in (None, file.real) and not moved:
            raise StateError(
                f"{file.name} is a copy of {validation.shown(home)}, where it was kept: expected it there, "
                "because two copies would publish two streams under one noise (if it was moved here: moved=True)"
            )
        saved = content["before" if replay else "now"]
        publisher._journal = Journal(file, stamp, saved, kept=home is not None)
        return publisher

    @classmethod
    def _from_content(cls, content: Json, name: str, *, replay: bool, own: Mapping[str, object]) -> Self:
        """Publisher of a state's content; StateError if damaged or of another class."""
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
        """Return whether the content is a state of this class."""
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
        """Content of a state file; `home`: path of a kept one."""
        now = self._machine.pack(self._state)
        return {
            "class": self._written_as,
            "rule": rule_of(self._machine),
            "fastdp": __version__,
            "composition": self._description(),
            "secret": self._key.reveal().hex(),
            "member": self._key.member,
            "family": self._key.family.hex(),
            "noise": int(self._key.binding),
            "simulated": self._key.simulated,
            "home": home,
            "now": _without_log(now),
            "before": None,
            "digest": self._digest,
            "chunk": None,
            **({"log": now["log"]} if "log" in now else {}),
        }

    def _description(self) -> Json:
        # Once: a domain may be a map of a country.
        found: Json | None = self.__dict__.get("_described")
        if found is None:
            found = self._described = self._machine.describe()
        return found

    def _refuse_replay(self, call: str) -> None:
        """StateError while a replay is due: altered values would pass."""
        if self._replay is not None:
            raise StateError(f"{call}() on a publisher that waits for a replay: expected the recorded chunk first")

    # Copies: never the same noise twice.

    def __copy__(self) -> Self:
        return self._rekeyed_copy()

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self._rekeyed_copy()

    @single_caller
    def _rekeyed_copy(self) -> Self:
        """Independent publisher with the same state and a new key."""
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


def _with_log(packed: Packed, log: list[str]) -> Packed:
    """Packed state with its log, as a machine reads it."""
    return {**packed, "log": log} if log else packed


def _without_log(packed: Packed) -> Packed:
    return {name: value for name, value in packed.items() if name != "log"}
