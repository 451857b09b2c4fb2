"""Publishers whose state can be saved, kept and loaded: the part that does not depend on what they publish.

Source: the project's noise design, section 8.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastdp.alone import Alone, exclusive
from fastdp.errors import StateError
from fastdp.randomness.key import Key
from fastdp.statefile import StateFile
from fastdp.systems import persistence


class Durable(Alone):
    """A publisher with :meth:`save`, :meth:`keep` and :meth:`load`; what it publishes is up to its subclass.

    A subclass has ``_key`` and the methods without a body, calls :meth:`_write_ahead` before an output leaves, and
    sets ``_replay`` to None once it has left.
    """

    _key: Key

    def __init__(self) -> None:
        super().__init__()
        self._files = persistence.StateFiles()
        self._replay: persistence.Replay | None = None

    @property
    @abstractmethod
    def n_seen(self) -> int:
        """Values consumed."""

    @property
    @abstractmethod
    def _described(self) -> persistence.Described:
        """Parts and parameters."""

    @abstractmethod
    def _position(self) -> persistence.Position:
        """Where the publisher stands."""

    @abstractmethod
    def _restart(self, description: dict[str, Any], key: Key) -> None:
        """Become the described publisher before its first value; ``__init__`` has not run."""

    @abstractmethod
    def _resume(self, saved: persistence.Position) -> None:
        """Go to a saved position; any of ArithmeticError, LookupError, TypeError, ValueError if it is none."""

    @exclusive
    def save(self, path: str | os.PathLike[str], key: bytes | str | None = None) -> None:
        """Write the publisher's state to a file, once.

        Parameters
        ----------
        path : path
            Replaced atomically; readable by the owner alone.  It must be new, or a file of this publisher.
        key : 32 bytes or passphrase, optional
            Encrypts and authenticates the file (AES-256-GCM).  Without it the file is in the clear: whoever
            reads it has the noise (so with the outputs the data), the hold-out and exact sums.

        Raises
        ------
        StateError
            If the file belongs to another publisher or cannot be written.

        Notes
        -----
        What is published after the save is not in the file: going on from it with other values than those
        published gives them the same noise and reveals the difference.  :meth:`keep` closes that gap.
        """
        file = StateFile(path, key)
        self._refuse_replay("save")
        same = self._files.kept is not None and self._files.kept.real == file.real
        self._files.write(file, self._content(self._position(), kept=same))

    @exclusive
    def keep(self, path: str | os.PathLike[str], key: bytes | str | None = None) -> None:
        """From now on, save the state before every ``publish`` returns (write-ahead).

        Parameters, errors as for :meth:`save`.  A publisher loaded from a kept file keeps it already.  If a
        write fails, ``publish`` raises and the chunk is not consumed.
        """
        file = StateFile(path, key)
        self._refuse_replay("keep")
        self._files.write(file, self._content(self._position(), kept=True))
        self._files.kept = file

    @classmethod
    def load(cls, path: str | os.PathLike[str], key: bytes | str | None = None, *, replay: bool = False) -> Self:
        """A publisher that continues exactly where a saved one stood; from a kept file, it keeps the file too.

        Parameters
        ----------
        path, key
            As given to :meth:`save` or :meth:`keep`.
        replay : bool
            False: continue after the last chunk recorded.  True: go back to the start of that chunk, because
            its outputs were lost; the same values must then come again in one call, are checked against
            their fingerprint, and give the same outputs.

        Raises
        ------
        StateError
            If the file is missing, cut short, altered, of another version or publisher, or the key is wrong.
        """
        file = StateFile(path, key)
        content, header = persistence.read(file)
        name = repr(os.fspath(path))
        if not cls._loads(content["class"]):
            raise StateError(f"state file {name} holds a {content['class']}: expected a {cls.__name__}")
        if replay and content["before"] is None:
            raise StateError(f"state file {name} records no chunk to replay: expected replay=False")
        publisher = object.__new__(cls)
        with persistence.trusting(name):
            # Files from before streams had numbers name none.
            member = persistence.whole(content.get("member", 0))
            secret = Key(bytes.fromhex(content["secret"]), simulated=content["simulated"], member=member)
            publisher._restart(content["composition"], secret)
            saved = content["before" if replay else "now"]
            publisher._resume(saved)
            publisher._replay = persistence.Replay(**content["chunk"]) if replay else None
            publisher._files = persistence.StateFiles(file, header, saved, kept=content["kept"])
        return publisher

    @classmethod
    def _loads(cls, name: object) -> bool:
        """Whether a file of that class is one for this class."""
        return name == cls.__name__

    def _refuse_replay(self, call: str) -> None:
        """A file without the recorded chunk would let altered values pass."""
        if self._replay is not None:
            raise StateError(f"{call}() on a publisher that waits for a replay: expected the recorded chunk first")

    def _check_replay(self, values: NDArray[np.float64]) -> None:
        """Refuse anything but the recorded chunk where a replay is due."""
        if self._replay is not None:
            self._replay.check(values, self._key)

    def _write_ahead(self, values: NDArray[np.float64], now: persistence.Position) -> None:
        """Record the position before and after a chunk, and the chunk's fingerprint; a file must be kept."""
        assert self._files.kept is not None  # noqa: S101 - the caller has looked
        before = self._files.position_at(self.n_seen) or self._position()
        chunk = persistence.Replay.of(values, self._key)
        self._files.write(self._files.kept, self._content(now, kept=True, before=before, chunk=chunk))

    def _content(self, now: persistence.Position, *, kept: bool, **chunk: Any) -> dict[str, Any]:
        """What a state file holds of this publisher."""
        return persistence.content(type(self).__name__, self._described, self._key, now, kept=kept, **chunk)
