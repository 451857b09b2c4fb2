"""Online objects whose state can be saved, kept and loaded: the part that does not depend on what they publish.

Source: ``docs/state.md``.
"""

from __future__ import annotations

import json
import os
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NoReturn, Self, TypeVar

from fastdp import validation
from fastdp._version import __version__
from fastdp.errors import StateError
from fastdp.randomness.drawn_once import repeating
from fastdp.randomness.key import Binding, Key
from fastdp.state import codec, persistence
from fastdp.state.sealed_file import StateFile
from fastdp.state.single_caller import Alone, exclusive

R = TypeVar("R")


def _binding(noise: object) -> Binding:
    """The noise format of a file; ValueError for one that this fastdp does not draw."""
    known = [int(Binding.FIRST_FORMAT), int(Binding.COMPOSITION)]
    if type(noise) is not int or noise not in known:
        raise ValueError(f"noise format {validation.shown(noise)}: expected one of {known}")
    return Binding(noise)


class Durable(Alone):
    """An online object with :meth:`save`, :meth:`keep` and :meth:`load`; what it publishes is up to its subclass.

    A subclass has ``_key`` and the methods without a body.  Whatever it consumes goes through one of
    :meth:`_commit` (state in one value that is replaced), :meth:`_consume` (state that changes in place), or
    :meth:`_check_replay` and :meth:`_write_ahead` before an output leaves; what the latter gives, and ``_replay``
    None, take effect in one step with the state, so that an interrupt leaves a call consumed or not.

    Copies: ``copy.copy`` and ``copy.deepcopy`` give an independent object at the same place, with a key of its own;
    pickles are refused.
    """

    _key: Key

    def __init__(self) -> None:
        super().__init__()
        self._files = persistence.StateFiles()
        #: Rolling digest of what was consumed while a file was kept.
        self._digest = ""
        self._replay: persistence.Replay | None = None
        #: Where a replay must lead to, and the version of fastdp that says so.
        self._destination: tuple[persistence.Position, object] | None = None
        self._copies = 0
        #: In state files: a class that is read as one that it derives from is not renamed.
        self._written_as = type(self).__name__

    @property
    def noise_fingerprint(self) -> str | None:
        """Keyed digest of the secret, composition and stream that all noise follows from; None for a simulation.

        Two publishers with the same one would give the same noise; a ledger refuses the second.  It reveals nothing
        else about the key.
        """
        return None if self._key.simulated else self._key.fingerprint()

    # What an object has to tell.

    @property
    @abstractmethod
    def _consumed(self) -> int:
        """Grows with whatever changes the state; a position's ``n_seen``."""

    @abstractmethod
    def _position(self) -> persistence.Position:
        """Where the object stands."""

    @abstractmethod
    def _resume(self, saved: persistence.Position) -> None:
        """Go to a saved position; an ordinary error, such as ValueError, if it is none."""

    @abstractmethod
    def _describe(self) -> dict[str, Any]:
        """Parts and parameters, for a state file."""

    @classmethod
    @abstractmethod
    def _restart(cls, description: dict[str, Any], key: Key, **own: Any) -> Self:
        """The described object before its first value."""

    @abstractmethod
    def _fresh(self, key: Key) -> Self:
        """An object with the same parts and parameters before its first value."""

    def _led_by(self, values: persistence.Chunk) -> persistence.Position:
        """Where these values alone lead; for objects whose replay may bring further ones.  Changes nothing."""
        raise NotImplementedError

    def _chunk(self, parts: tuple[Any, ...]) -> persistence.Chunk:
        """What a call consumes, for its fingerprint; by default a batch, which comes again whole."""
        return persistence.as_one(*parts)

    # State files.

    @property
    def digest(self) -> str:
        """Rolling keyed digest of what was consumed while a state file was kept, call by call, in hexadecimal.

        Two runs with one key have the same digest only if they consumed the same.  Empty before the first call.
        """
        return self._digest

    @exclusive
    def save(self, path: str | os.PathLike[str], key: bytes | str | None = None) -> None:
        """Write the state to a file, once.

        Parameters
        ----------
        path : path
            Replaced atomically; readable by the owner alone.  It must be new, or a file of this object.
        key : 32 bytes or passphrase, optional
            Encrypts and authenticates the file (AES-256-GCM).  Without it the file is in the clear: whoever
            reads it has the noise (so with the outputs the data), the hold-out and exact sums.

        Raises
        ------
        StateError
            If the file belongs to another object or cannot be written; or if it is kept, under another key.

        Notes
        -----
        What is published after the save is not in the file: going on from it with other values than those
        published gives them the same noise and reveals the difference.  :meth:`keep` closes that gap.
        """
        file = StateFile(path, key)
        self._refuse_replay("save")
        self._write(file, kept=self._files.keeps(file))

    @exclusive
    def keep(self, path: str | os.PathLike[str], key: bytes | str | None = None) -> None:
        """From now on, save the state before every call that consumes something returns (write-ahead).

        Parameters, errors as for :meth:`save`.  An object loaded from a kept file keeps it already.  If a
        write fails, the call raises and nothing is consumed.  One file is kept, and no other one after it: the
        first would stay behind, and who loads it would give its noise to other values.
        """
        file = StateFile(path, key)
        self._refuse_replay("keep")
        if self._files.kept is not None and not self._files.keeps(file):
            raise StateError(
                f"keep({os.fspath(path)!r}) on a publisher that keeps {os.fspath(self._files.kept.path)!r}: expected "
                "that path (to change it, stop, move the file, and load it with moved=True)"
            )
        self._write(file, kept=True)
        self._files.kept = file

    def _write(self, file: StateFile, *, kept: bool) -> None:
        # What the file has already is left alone: written again, it would not have the last call.
        if not self._files.is_current(file, self._consumed):
            self._files.write(file, self._content(file, self._position(), kept=kept))

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        key: bytes | str | None = None,
        *,
        replay: bool = False,
        moved: bool = False,
    ) -> Self:
        """An object that continues exactly where a saved one stood; from a kept file, it keeps the file too.

        Parameters
        ----------
        path, key
            As given to :meth:`save` or :meth:`keep`.
        replay : bool
            False: continue after the last call recorded.  True: go back to the start of that call, because
            its outputs were lost; the same values must then come again in one call, are checked against
            their fingerprint, and give the same outputs.
        moved : bool
            True: the kept file was moved here, and nobody goes on with it where it was.  A copy of a kept file is
            refused otherwise, because two copies would publish two streams under one noise.

        Raises
        ------
        StateError
            If the file is missing, cut short, altered, a copy, of another version or class, or the key is wrong.
        """
        return cls._load(path, key, replay, moved)

    @classmethod
    def _load(
        cls, path: str | os.PathLike[str], key: bytes | str | None, replay: bool, moved: bool, **own: Any
    ) -> Self:
        """As :meth:`load`, with parts that a file cannot hold."""
        file = StateFile(path, key)
        content, header = persistence.read(file)
        name = repr(os.fspath(path))
        with persistence.trusting(name, content.get("fastdp")):
            fits = cls._loads(content)
        if not fits:
            shown = validation.shown(content["class"]).strip("'")
            raise StateError(f"state file {name} holds a {shown}: expected a {cls.__name__}")
        if replay and (content["before"] is None or not content["kept"]):
            raise StateError(f"state file {name} records no chunk to replay: expected replay=False")
        # Files that are not kept, and those of older fastdps, have no home.
        home = content.get("home")
        if home not in (None, file.real) and not moved:
            raise StateError(
                f"state file {name} is a copy of {validation.shown(home)}, where it was kept: expected it there, "
                "because two copies would publish two streams under one noise (if it was moved here: moved=True)"
            )
        with persistence.trusting(name, content.get("fastdp")):
            # Files from before streams had numbers name none, those of the first noise format no format.
            member = codec.whole(content.get("member", 0))
            binding = _binding(content.get("noise", int(Binding.FIRST_FORMAT)))
            raw = bytes.fromhex(content["secret"])
            secret = Key(raw, simulated=content["simulated"], member=member, binding=binding)
            publisher = cls._restart(content["composition"], secret, **own)
            saved = content["before" if replay else "now"]
            publisher._resume(saved)
            chunk = None if content["chunk"] is None else persistence.Replay(**content["chunk"])
            publisher._written_as = content["class"]
            publisher._replay = chunk if replay else None
            publisher._destination = (content["now"], content.get("fastdp")) if replay else None
            # Files of the first fastdp have no rolling digest.
            publisher._digest = chunk.digest if chunk and not replay else content.get("digest", "")
            bytes.fromhex(publisher._digest)
            publisher._files = persistence.StateFiles(file, header, saved, kept=content["kept"])
        return publisher

    @classmethod
    def _loads(cls, content: dict[str, Any]) -> bool:
        """Whether a file with this content is one for this class."""
        return bool(content["class"] == cls.__name__)

    def _refuse_replay(self, call: str) -> None:
        """A file without the recorded chunk would let altered values pass."""
        if self._replay is not None:
            raise StateError(f"{call}() on a publisher that waits for a replay: expected the recorded chunk first")

    def _check_replay(self, values: persistence.Chunk) -> None:
        """Refuse anything but the recorded chunk where a replay is due."""
        if self._replay is not None:
            self._replay.check(values, self._key, self._digest)

    def _check_batch(self, *parts: Any) -> None:
        """The same for a call that consumes these."""
        if self._replay is not None:
            self._check_replay(self._chunk(parts))

    def _write_ahead(self, values: persistence.Chunk, now: persistence.Position, **drawn: Any) -> str:
        """Record the position before and after a chunk, and the chunk's fingerprint; a file must be kept.

        ``drawn`` joins the position before: what a replay must not draw again.  Returns the digest that becomes
        ``_digest`` in the same step in which the chunk is consumed.
        """
        kept = self._files.kept
        assert kept is not None  # noqa: S101 - the caller has looked
        self._check_destination(values, now)
        before = {**(self._files.position_at(self._consumed) or self._position()), **drawn}
        chunk = persistence.Replay.of(values, self._key, self._digest)
        self._files.write(kept, self._content(kept, now, kept=True, before=before, chunk=chunk))
        return chunk.digest

    def _check_destination(self, values: persistence.Chunk, now: persistence.Position) -> None:
        """Refuse a replay that leads elsewhere than the recorded call: another fastdp may cut a stream differently.

        The same noise would then meet other sums, whose difference it would reveal.
        """
        if self._replay is None or self._destination is None:
            return
        recorded, writer = self._destination
        count = self._replay.count
        with repeating():
            there = now if values.size == count else self._led_by(values[:count])
        if not self._is_there(json.loads(json.dumps(there)), recorded):
            raise StateError(
                f"the replay leads to another position than the state file recorded (by fastdp {writer}, this is "
                f"{__version__}): expected the fastdp that wrote it, because the same noise would meet other sums"
            )

    def _is_there(self, there: persistence.Position, recorded: persistence.Position) -> bool:
        """Whether two positions, as a file holds them, are the same."""
        return codec.same(there, recorded)

    def _content(self, file: StateFile, now: persistence.Position, *, kept: bool, **chunk: Any) -> dict[str, Any]:
        """What a state file holds of this object."""
        whole = persistence.content(
            self._written_as, self._describe(), self._key, now, kept=kept, digest=self._digest, **chunk
        )
        return {**whole, "home": file.real} if kept else whole

    def _consume(self, work: Callable[[Self], R], *parts: Any) -> R:
        """Do work that changes the state in place; where a file is kept, on a twin until it is recorded."""
        self._check_batch(*parts)
        kept = self._files.kept is not None
        acting = self._twin(self._key) if kept else self
        result = work(acting)
        if kept and acting._consumed != self._consumed:
            digest = self._write_ahead(self._chunk(parts), acting._position())
            self._take_over(acting, _digest=digest, _replay=None)
        self._replay = None
        return result

    def _take_over(self, twin: Self, **own: Any) -> None:
        """Take a twin's place, and these attributes, in one step; for objects that use :meth:`_consume`."""
        raise NotImplementedError

    # Copies: never the same noise twice.

    def __copy__(self) -> Self:
        return self._rekeyed_copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        del memo
        return self._rekeyed_copy()

    @exclusive
    def _rekeyed_copy(self) -> Self:
        """An independent object at the same place with noise of its own.

        Equal noise on different values would reveal their difference, so a copy never keeps the key.
        """
        self._refuse_replay("copy")
        self._copies += 1
        return self._twin(self._key.derive("copy", self._copies) if self._key.simulated else Key.choose(None, None))

    def _twin(self, key: Key) -> Self:
        """Another object at the same place."""
        twin = self._fresh(key)
        twin._resume(self._position())
        return twin

    def __reduce__(self) -> NoReturn:
        raise StateError(
            f"a {type(self).__name__} cannot be pickled: the noise key would be neither encrypted nor owner-only; "
            "use save(path, key) and load(path, key)"
        )
