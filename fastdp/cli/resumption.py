"""``--state``: a release that was killed is run again, and no position gets a second noise.

The state file holds the noise key and a mark: how many values the output may already depend on, and a keyed digest of
them.  The mark is written before anything behind it leaves.  The same command then publishes the stream from its
start with the same noise, which gives the same bytes; up to the mark nothing leaves before the digest has shown that
the values are the same, because other values under the same noise would reveal their difference.  A file takes its
place at the end, so its mark is the end; what a killed run left of it is removed before another run writes.  Nor may
a copy of the state file be used beside it.
Source: the project's noise design, section 8.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastdp import packing, persistence
from fastdp.errors import DataError, StateError
from fastdp.files.atomic_file import remove_leftovers
from fastdp.randomness.key import Key
from fastdp.statefile import StateFile

Floats = NDArray[np.float64]
Write = Callable[[Floats], None]

KIND = "fastdp release"
#: Published values read back at a time.
BATCH = 2**17


class Resumption:
    """One release, over all runs of its command.

    Parameters
    ----------
    path : Path
        The state file; :meth:`begin` makes it if it is not there.
    settings : dict
        Everything that the output depends on besides the values and the key, as plain values.
    key : Key or None
        The user's own, which encrypts the file too; None for a fresh one, which the file then holds in the clear.

    Raises
    ------
    StateError
        If the file is damaged, a copy, of another release, or of another key.

    Attributes
    ----------
    reservation : dict or None
        Under which budget the release began, as :meth:`begin` was told.
    """

    def __init__(self, path: Path, settings: dict[str, Any], key: Key | None) -> None:
        real = key is not None and not key.simulated
        self._file = StateFile(path, key.derive("release state").reveal() if key is not None and real else None)
        self._settings = settings
        self._count = 0
        self._outputs: list[str] = []
        self.reservation: dict[str, Any] | None = None
        self._new = not Path(self._file.real).exists()
        if not self._new:
            self.key, self._mark, self._digest, self._files = self._read(key)
        else:
            self.key, self._mark, self._digest = key or Key.random(), 0, ""
            self._files = persistence.StateFiles()
        self._hash = self._fresh_hash()

    def _fresh_hash(self) -> Any:
        return hashlib.blake2b(key=self.key.derive("release digest").reveal(), digest_size=32)

    def _read(self, key: Key | None) -> tuple[Key, int, str, persistence.StateFiles]:
        name = repr(os.fspath(self._file.path))
        content, header = persistence.read(self._file)
        if content["class"] != KIND:
            raise StateError(f"state file {name} holds a {content['class']}: expected a {KIND}")
        with persistence.trusting(name):
            was = dict(content["composition"])
        if was != self._settings:
            changed = ", ".join(
                f"{option} = {was.get(option)!r}, now {value!r}"
                for option, value in self._settings.items()
                if was.get(option) != value
            )
            raise StateError(f"state file {name} is of a release with {changed}: expected the same command again")
        with persistence.trusting(name):
            place = content["place"]
            home, self._outputs = str(place["state"]), [str(each) for each in place["outputs"]]
            self.reservation = None if place["reservation"] is None else dict(place["reservation"])
        if home != self._file.real:
            raise StateError(
                f"state file {name} is a copy of {home!r}: expected it there, because two copies would publish two "
                "streams under one noise"
            )
        with persistence.trusting(name):
            secret = Key(bytes.fromhex(content["secret"]), simulated=bool(content["simulated"]))
            mark, digest = packing.whole(content["now"]["n_seen"]), str(content["now"]["digest"])
            if mark < 0:
                raise ValueError(f"a mark at {mark}")
        if secret != (key or secret) or (key is None and secret.simulated):
            raise StateError(f"state file {name} is of a release with another key or seed: expected the same")
        return secret, mark, digest, persistence.StateFiles(self._file, header)

    def begin(self, output: str | None, reservation: dict[str, Any] | None) -> None:
        """Put the key on disk, once everything else about the command is known to be in order.

        Parameters
        ----------
        output : str or None
            The file that is about to be written; None for standard output.
        reservation : dict or None
            What a ledger has reserved for the release, as plain values.
        """
        for known in self._outputs:
            remove_leftovers(Path(known))
        into = [] if output is None else [os.path.realpath(output)]
        outputs = sorted({*self._outputs, *into})
        if self._new or (outputs, reservation) != (self._outputs, self.reservation):
            self._outputs, self.reservation = outputs, reservation
            self._write()
            self._new = False

    def follow(self, values: Floats) -> None:
        """Count and fingerprint the next values of the stream.

        Raises
        ------
        DataError
            If they differ from those that an earlier run has published.
        """
        before = values[: max(0, self._mark - self._count)]
        if before.size:
            self._hash.update(np.ascontiguousarray(before).data)
            if self._count + before.size == self._mark and self._hash.hexdigest() != self._digest:
                raise DataError(
                    f"the first {self._mark:,} values are not those that state file {os.fspath(self._file.path)!r} "
                    "recorded: other values under the same noise would reveal the difference"
                )
        self._hash.update(np.ascontiguousarray(values[before.size :]).data)
        self._count += values.size

    @property
    def resumed(self) -> bool:
        """Whether an earlier run has begun this release."""
        return not self._new

    @property
    def verified(self) -> bool:
        """Whether everything that an earlier run may have published has come again."""
        return self._count >= self._mark

    def record(self) -> None:
        """Move the mark to here, on disk, unless an earlier run has been further."""
        if self._count > self._mark:
            self._mark, self._digest = self._count, self._hash.hexdigest()
            self._write()

    def _write(self) -> None:
        now = {"n_seen": self._mark, "digest": self._digest}
        content: dict[str, Any] = {"class": KIND, "composition": self._settings, "secret": self.key.reveal().hex()}
        content |= {"simulated": self.key.simulated, "kept": True, "now": now, "before": None}
        content["place"] = {"state": self._file.real, "outputs": self._outputs, "reservation": self.reservation}
        self._files.write(self._file, content)

    def finish(self) -> None:
        """Before a file appears as a whole.

        Raises
        ------
        DataError
            If fewer values came than an earlier run has published.
        """
        if not self.verified:
            raise DataError(
                f"{self._count:,} values came, fewer than the {self._mark:,} that state file "
                f"{os.fspath(self._file.path)!r} recorded: expected the same values again"
            )
        self.record()


class Withheld:
    """Output that leaves as it comes, but not before the values behind it are known to be the same as before.

    Parameters
    ----------
    resumption : Resumption
        Knows how far they must be.
    write : function of float64[n]
        Where the output leaves.
    """

    def __init__(self, resumption: Resumption, write: Write) -> None:
        self._resumption, self._write = resumption, write
        # Without a name, so that it vanishes with the process.
        self._spool = tempfile.TemporaryFile()  # noqa: SIM115 - closed by leaving the block

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._spool.close()

    def write(self, values: Floats) -> None:
        """Publish what follows from the values followed so far."""
        if not self._resumption.verified:
            self._spool.write(np.ascontiguousarray(values).data)
            return
        # Write-ahead: the mark is on disk before anything behind it leaves.
        self._resumption.record()
        self._empty()
        self._write(values)

    def _empty(self) -> None:
        if not self._spool.tell():
            return
        self._spool.seek(0)
        while raw := self._spool.read(8 * BATCH):
            self._write(np.frombuffer(raw, np.float64))
        self._spool.seek(0)
        self._spool.truncate()
