"""Saving, loading and write-ahead keeping of a publisher's state.

One prefix of a stream gets at most one noise: publishing the same values again with fresh noise doubles
the loss, publishing altered values with the same noise reveals their difference.  So a kept publisher
writes its state, with a fingerprint of the chunk, before the chunk's outputs leave; after a crash it
continues, or accepts the very same chunk once more.  Source: the project's noise design, section 8.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastdp.errors import DataError, StateError
from fastdp.grid import Grid
from fastdp.perturbers import Hierarchy
from fastdp.randomness.key import Key
from fastdp.smoothers import Smoother
from fastdp.statefile import StateFile
from fastdp.systems import saved_state
from fastdp.systems.pipeline import Progress
from fastdp.thresholds import Chooser, Threshold


@dataclass(frozen=True)
class Replay:
    """A chunk whose outputs may have left already: it must come again unchanged.

    Attributes
    ----------
    count : int
        Its number of values.
    digest : str
        Its keyed fingerprint.
    """

    count: int
    digest: str

    def check(self, values: NDArray[np.float64], key: Key) -> None:
        """Refuse anything but the same values again (more may follow them)."""
        if values.size < self.count:
            raise DataError(
                f"chunk has {values.size} values: expected at least the {self.count} values that the state file "
                "recorded last, in one call (replay)"
            )
        if saved_state.digest(values[: self.count], key) != self.digest:
            raise DataError(
                f"chunk[:{self.count}] differs from the values that the state file recorded last: "
                "publishing altered values with the same noise would reveal the difference"
            )


class Keeper:
    """Writes one publisher's state to one file, and notices when somebody else does."""

    def __init__(self, file: StateFile, generation: int) -> None:
        self.file = file
        self.generation = generation

    def write(self, content: dict[str, Any]) -> None:
        """Write the next generation."""
        if self.file.exists():
            found = self.file.generation()
            if found != self.generation:
                raise StateError(
                    f"state file {os.fspath(self.file.path)!r} is at generation {found}, this publisher at "
                    f"{self.generation}: another publisher has written it, or a stale copy was put back"
                )
        elif self.generation:
            raise StateError(
                f"state file {os.fspath(self.file.path)!r} is gone: expected generation {self.generation}"
            )
        self.file.write(saved_state.encode(content), self.generation + 1)
        self.generation += 1


def snapshot(progress: Progress, chooser: Chooser) -> dict[str, Any]:
    """One position in the stream, with the hold-out's summary while it is still needed."""
    counts = chooser.counts if progress.theta_steps == 0 else np.empty(0, np.int64)
    return {**dataclasses.asdict(progress), "counts": saved_state.pack_counts(counts)}


def restore(publisher: Keeping, saved: dict[str, Any]) -> None:
    """Put a fresh publisher at a saved position."""
    values = dict(saved)
    counts = saved_state.unpack_counts(values.pop("counts"))
    values["smoother"] = tuple(values["smoother"])
    publisher._progress = Progress(**values)
    if counts.size:
        publisher._chooser.counts[:] = counts


class Keeping:
    """The part of a publisher that saves and loads; a publisher fills in what is declared here."""

    _threshold: Threshold
    _perturber: Hierarchy
    _smoother: Smoother | None
    _epsilon: float
    _bound: float
    _holdout: int
    _max_range: int
    _nonfinite: str
    _grid: Grid
    _key: Key
    _progress: Progress
    _chooser: Chooser
    _keeper: Keeper | None
    _loaded: tuple[str, int] | None
    _replay: Replay | None
    _compose: Callable[..., None]

    def save(self, path: str | os.PathLike[str], key: bytes | str | None = None) -> None:
        """Write the publisher's state to a file, once.

        Parameters
        ----------
        path : path
            Replaced atomically; readable by the owner alone.
        key : 32 bytes or passphrase, optional
            Encrypts and authenticates the file (AES-256-GCM).  Without it the file is in the clear: whoever
            reads it and the outputs has the data.

        Notes
        -----
        What is published after the save and before a crash is not in the file; :meth:`keep` closes that gap.
        """
        file = StateFile(path, key)
        content = self._content(self._progress, self._chooser, None, None)
        file.write(saved_state.encode(content), file.generation() + 1 if file.exists() else 1)

    def keep(self, path: str | os.PathLike[str], key: bytes | str | None = None) -> None:
        """From now on, save the state before every :meth:`publish` returns (write-ahead).

        Parameters
        ----------
        path, key
            As for :meth:`save`.  The file must not exist yet, or be the one this publisher was loaded from.

        Raises
        ------
        StateError
            If the file belongs to another publisher or cannot be written; then also from ``publish``, whose
            chunk is not consumed.
        """
        file = StateFile(path, key)
        if file.exists():
            loaded = self._loaded
            if loaded is None or os.path.realpath(loaded[0]) != os.path.realpath(path):
                raise StateError(
                    f"state file {os.fspath(path)!r} exists: expected a new path, or the file that this publisher "
                    "was loaded from"
                )
            keeper = Keeper(file, loaded[1])
        else:
            keeper = Keeper(file, 0)
        if self._replay is None:
            keeper.write(self._content(self._progress, self._chooser, None, None))
        self._keeper = keeper

    @classmethod
    def load(cls, path: str | os.PathLike[str], key: bytes | str | None = None, *, replay: bool = False) -> Self:
        """A publisher that continues exactly where a saved one stood.

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
        payload, generation = file.read()
        content = saved_state.decode(payload, os.fspath(path))
        if content["class"] != cls.__name__ and cls.__name__ != "StreamPublisher":
            raise StateError(f"state file {os.fspath(path)!r} holds a {content['class']}: expected a {cls.__name__}")
        publisher = object.__new__(cls)
        publisher._compose(
            threshold=saved_state.build_part(content["threshold"]),
            perturber=saved_state.build_part(content["perturber"]),
            smoother=saved_state.build_part(content["smoother"]),
            key=Key(bytes.fromhex(content["secret"]), simulated=content["simulated"]),
            **content["parameters"],
        )
        publisher._loaded = (os.fspath(path), generation)
        before = content["before"]
        if replay:
            if before is None:
                raise StateError(f"state file {os.fspath(path)!r} records no chunk to replay: expected replay=False")
            restore(publisher, before)
            publisher._replay = Replay(content["replay"]["count"], content["replay"]["digest"])
        else:
            restore(publisher, content["now"])
        return publisher

    def _content(
        self,
        now: Progress,
        chooser: Chooser,
        before: dict[str, Any] | None,
        chunk: NDArray[np.float64] | None,
    ) -> dict[str, Any]:
        """Everything a file holds: parts, parameters, key, and one or two positions."""
        replay = None if chunk is None else {"count": chunk.size, "digest": saved_state.digest(chunk, self._key)}
        return {
            "class": type(self).__name__,
            "threshold": saved_state.describe_part(self._threshold),
            "perturber": saved_state.describe_part(self._perturber),
            "smoother": saved_state.describe_part(self._smoother),
            "parameters": {
                "epsilon": self._epsilon,
                "bound": self._bound,
                "holdout": self._holdout,
                "max_range": self._max_range,
                "resolution": self._grid.resolution,
                "nonfinite": self._nonfinite,
            },
            "secret": self._key.reveal().hex(),
            "simulated": self._key.simulated,
            "now": snapshot(now, chooser),
            "before": before,
            "replay": replay,
        }
