"""A sweep's folder: one sweep, one runner at a time, and a record of its sessions."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from fastdp._version import __version__
from fastdp.errors import DataError, StateError
from fastdp.files.durable import atomic_file
from fastdp_lab.sweeps.cells import FORMAT, count_cells, parts
from fastdp_lab.sweeps.results import MANIFEST, PARTS, RESULTS, part_path, read_manifest, write_json
from fastdp_lab.sweeps.specification import Specification, canonical

_LIBRARIES = ("numpy", "numba", "scipy", "pyarrow", "cryptography")


def now() -> str:
    """The time, to the second, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _versions() -> dict[str, str]:
    found = {"fastdp": __version__, "python": platform.python_version()}
    for name in _LIBRARIES:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


class SweepFolder:
    """The folder that a sweep writes to; nothing is touched before :meth:`locked`.

    Parameters
    ----------
    path : Path
        Created if absent.
    specification : Specification
        The sweep; a folder holds one.
    data : dict
        Digest and length of each data set, by name.
    """

    def __init__(self, path: Path, specification: Specification, data: dict[str, Any]) -> None:
        self.path = path
        self.manifest: dict[str, Any] = {}
        self._specification = specification
        self._data = data

    def _begin(self) -> None:
        """Read the manifest, or write the first one, under the folder's lock."""
        table = self._specification.table()
        digest = hashlib.sha256(canonical([FORMAT, table]).encode()).hexdigest()
        if (self.path / MANIFEST).exists():
            self.manifest = read_manifest(self.path)
            if self.manifest.get("digest") != digest:
                raise DataError(
                    f"{self.path} holds another sweep: expected a new folder, or the specification of that sweep"
                )
            if self.manifest.get("data") != self._data:
                raise DataError(
                    f"{self.path}: the data sets have changed since the sweep began; expected a new folder"
                )
            began = self.manifest["versions"]["fastdp"]
            if began != __version__ and not self.finished:
                raise DataError(
                    f"{self.path} was begun by fastdp {began}, this is {__version__}, whose numbers may differ; "
                    "expected that version, or a new folder"
                )
        else:
            self._refuse_other_files()
            self.manifest = {
                "name": self._specification.name,
                "seed": self._specification.seed,
                "specification": table,
                "digest": digest,
                "data": self._data,
                "cells": count_cells(self._specification),
                "parts": [part.name(self._specification) for part in parts(self._specification)],
                "versions": _versions(),
                "machine": {"platform": platform.platform(), "processor": platform.machine(), "cpus": os.cpu_count()},
                "sessions": [],
                "finished": None,
            }
            self._write_manifest()
        (self.path / PARTS).mkdir(exist_ok=True)

    def _refuse_other_files(self) -> None:
        others = sorted(each.name for each in self.path.iterdir() if not each.name.startswith("."))
        # Checked second: a runner that began in between wrote its manifest before other files.
        if others and not (self.path / MANIFEST).exists():
            raise DataError(f"{self.path} holds {others[0]}: expected an empty folder, or one of this sweep")

    def _write_manifest(self) -> None:
        write_json(self.path / MANIFEST, self.manifest)

    @property
    def finished(self) -> bool:
        """Whether the final table exists."""
        return (self.path / RESULTS).exists()

    def done(self) -> set[str]:
        """Names of the parts whose files exist."""
        return {each.stem for each in (self.path / PARTS).glob("*.parquet")}

    def write_part(self, name: str, content: bytes) -> None:
        """Write a part's file, which appears complete or not at all.

        The folder is not synced: after a power cut the file may be missing, and the part is run again.  Temporary
        files of a killed runner are removed by :meth:`locked`.
        """
        with atomic_file(part_path(self.path, name), overwrite=True, alone=True) as file:
            file.write(content)

    def drop_part(self, name: str) -> None:
        """Remove a part's file, so that it is run again."""
        part_path(self.path, name).unlink(missing_ok=True)

    def begin_session(self, session: dict[str, Any]) -> None:
        """Record workers and versions before parts are run."""
        self.manifest["sessions"].append({**session, "started": now(), "versions": _versions(), "seconds": None})
        self._write_manifest()

    def end_session(self, seconds: float) -> None:
        """Record the session's time; a killed session has no ``seconds``."""
        self.manifest["sessions"][-1]["seconds"] = seconds
        self._write_manifest()

    def finish(self) -> None:
        """Remove the parts, which the final table contains; may be repeated."""
        if self.manifest["finished"] is None:
            self.manifest["finished"] = now()
            self._write_manifest()
        for each in (self.path / PARTS).iterdir():
            each.unlink()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder's lock, where the system has locks, and remove a killed runner's temporary files.

        Raises
        ------
        StateError
            If another runner holds the lock.
        DataError
            If the folder holds another sweep or other files, the data have changed since it began, or an unfinished
            one is of another version of fastdp.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        if not (self.path / MANIFEST).exists():
            # Before a lock file is created in a folder of other files.
            self._refuse_other_files()
        with (self.path / ".lock").open("w") as lock:
            try:
                import fcntl

                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except ImportError:
                pass
            except BlockingIOError:
                raise StateError(
                    f"{self.path}: another sweep writes to this folder; expected it to end first"
                ) from None
            except OSError as error:
                raise StateError(
                    f"{self.path}: could not be locked: {error.strerror or error}; expected a file system with locks "
                    "(flock)"
                ) from error
            self._begin()
            for place in (self.path, self.path / PARTS):
                for each in place.glob(".*.tmp"):
                    each.unlink()
            yield
