"""Shards of a job's fleet, with state files from which any worker continues; for Dask."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self, TypeAlias

import numpy as np

from fastdp import validation
from fastdp.data.column import NOT_FINITE, as_column, as_floats, entry_at
from fastdp.engines.job import Column, Job, publish
from fastdp.errors import DataError, StateError
from fastdp.kinds import Floats, Indices
from fastdp.state import atomic_files
from fastdp.state.atomic_files import atomic_file
from fastdp.streams.fleet import Fleet
from fastdp.streams.ids import as_ids
from fastdp.streams.stream_machine import Schedule

#: Rows that publish, and their values.
Published: TypeAlias = tuple[Indices, Floats]
#: Ids and values of a shard's rows, and its last batch whose output arrived.
Share: TypeAlias = tuple[Column, Floats, int]


#: The file of a folder that holds the parameters, once all shards have a state.
JOB = "job.state"


class Shard:
    """Shard k of n, `part` = (k, n), with one sealed state file for each batch."""

    def __init__(self, job: Job, folder: str | os.PathLike[str], part: tuple[int, int]) -> None:
        self._job, self._part = job, part
        self._folder = Path(folder) / f"shard-{part[0]}-of-{part[1]}"
        #: The fleet, and the batch that it consumed last.
        self._open: tuple[int, Fleet] | None = None
        self._written = 0

    def publish(self, batch: int, ids: Column, values: Floats, written: int = 0) -> Published:
        """Published rows and values of `batch`, perhaps the last again.

        ``written``: last batch known to be stored.
        """
        before = self._before(batch, max(written, self._written))
        if self._open is not None and self._open[0] == before:
            fleet = self._open[1]
        elif self._file(before).exists():
            fleet = self._job.from_bytes(self._file(before).read_bytes(), self._part[1])
        else:
            fleet = self._job.fleet(self._part)
        self._open = None
        rows, out = publish(fleet, ids, values)
        # The state is in its file before an output leaves; a retry begins from the state before.
        with atomic_file(self._file(batch), overwrite=True) as file:
            file.write(self._job.to_bytes(fleet))
        for number in self._numbers():
            if number < before:
                self._file(number).unlink(missing_ok=True)
        self._open, self._written = (batch, fleet), batch
        return rows, out

    def _before(self, batch: int, written: int) -> int:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        numbers = list(self._numbers())
        newest = max(numbers, default=0)
        if newest < written:
            raise StateError(
                f"{self._folder} has lost the state behind batch {written}: expected the files as they were written; "
                "its streams would begin again and cost epsilon again"
            )
        if batch < newest:
            raise StateError(
                f"batch = {batch}: expected {newest} once more, or a later one; the states before it are gone"
            )
        return max((number for number in numbers if number < batch), default=0)

    def _numbers(self) -> Iterator[int]:
        for path in self._folder.glob("*.state"):
            with suppress(ValueError):
                yield int(path.stem)

    def _file(self, batch: int) -> Path:
        return self._folder / f"{batch}.state"


class Shards(ABC):
    """All shards of a job on an engine; the end of ``with`` releases the folder.

    Parameters
    ----------
    job : Job
        Mechanism, name and location of the secret.
    folder : path
        Of the state, one for a job, which every worker reaches; a second program is refused where the file system has
        locks.
    shards : int
        Public number of shards, which belongs to the state: another one is refused.
    """

    def __init__(self, job: Job, folder: str | os.PathLike[str], shards: int) -> None:
        self.job, self.folder = job, Path(folder).resolve()
        self.shards = validation.integer("shards", shards, 1, 2**12)
        #: The last batch of each shard whose outputs came.
        self._written: dict[int, int] = {}
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._hold = atomic_files.Hold(self.folder)
        if not atomic_files.lock(self._hold.descriptor):
            raise StateError(f"{self.folder} is used by another program: expected one program for a job")
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        """Write the state before the first batch of each shard, parameters last: a folder with them is complete."""
        path, made = self.folder / JOB, [self.folder / f"shard-{k}-of-{self.shards}" for k in range(self.shards)]
        begun = path.exists()
        if begun:
            self.job.from_bytes(path.read_bytes(), self.shards)
        lost = [place.name for place in made if begun and not any(place.glob("*.state"))]
        if not begun and any(self.folder.glob("shard-*/[1-9]*.state")):
            lost = [JOB]
        if lost:
            raise StateError(
                f"{self.folder} has lost {lost[0]}: expected the files as they were written; its streams would begin "
                "again and cost epsilon again"
            )
        for k, place in enumerate([] if begun else made):
            place.mkdir(exist_ok=True, mode=0o700)
            self._write(place / "0.state", k)
        if not begun:
            self._write(path, 0)

    def _write(self, path: Path, k: int) -> None:
        with atomic_file(path, overwrite=True) as file:
            file.write(self.job.to_bytes(self.job.fleet((k, self.shards))))

    def publish(self, batch: int, ids: Column, values: Column) -> Published:
        """Consume one batch of rows, of any of the streams, and publish.

        Parameters
        ----------
        batch : int
            Its number, from 1, larger than the last.  After a crash, or an error other than this call's
            :class:`fastdp.errors.DataError`, give the last batch again under its number.
        ids, values
            As for :meth:`fastdp.Fleet.publish`.

        Returns
        -------
        rows, out : int64[m], float64[m]
            Rows that publish, after the hold-out, and their values.
        """
        batch = validation.integer("batch", batch, 1)
        numbers = as_floats(as_column(values, "values"))
        # Before any shard consumes its rows; each of them checks again.
        wrong = ~np.isfinite(numbers)
        machine = self.job.machine
        refuses = not isinstance(machine, Schedule) or machine.composition.nonfinite == "raise"
        if refuses and wrong.any():
            raise DataError(f"{entry_at('values', wrong, NOT_FINITE)}; expected finite values")
        found = as_ids(ids, len(numbers))
        owners = Fleet.part_of(found, self.shards)
        rows_of = {int(k): np.flatnonzero(owners == k) for k in np.unique(owners)}
        shares: dict[int, Share] = {}
        for k, mine in rows_of.items():
            own = [found[i] for i in mine.tolist()] if isinstance(found, list) else found[mine]
            shares[k] = own, numbers[mine], self._written.get(k, 0)
        answers = self._run(batch, shares)
        self._written |= dict.fromkeys(answers, batch)
        rows = np.concatenate([rows_of[k][rows] for k, (rows, _) in answers.items()] or [np.empty(0, np.int64)])
        out = np.concatenate([published for _, published in answers.values()] or [np.empty(0)])
        order = np.argsort(rows, kind="stable")
        return rows[order], out[order]

    @abstractmethod
    def _run(self, batch: int, shares: dict[int, Share]) -> dict[int, Published]: ...

    def close(self) -> None:
        """Release the folder; the state files stay."""
        self._hold.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
