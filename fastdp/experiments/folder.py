"""A sweep's folder: one sweep, one runner at a time, and what was run by whom."""

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
from fastdp.experiments.cells import FORMAT, count_cells
from fastdp.experiments.results import MANIFEST, PARTS, RESULTS, read_manifest, write_json
from fastdp.experiments.specification import Specification, canonical
from fastdp.files.atomic_file import atomic_file

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
    """The folder that a sweep writes to.

    Parameters
    ----------
    path : Path
        Made if absent.
    specification : Specification
        The sweep; a folder holds one.
    data : dict
        Digest and length of each data set, by name.

    Raises
    ------
    DataError
        If the folder holds another sweep, or the data have changed since it began, or it holds other files.
    """

    def __init__(self, path: Path, specification: Specification, data: dict[str, Any]) -> None:
        self.path = path
        table = specification.table()
        digest = hashlib.sha256(canonical([FORMAT, table]).encode()).hexdigest()
        path.mkdir(parents=True, exist_ok=True)
        if (path / MANIFEST).exists():
            self.manifest = read_manifest(path)
            if self.manifest.get("digest") != digest:
                raise DataError(
                    f"{path} holds another sweep: expected a new folder, or the specification it began with"
                )
            if self.manifest.get("data") != data:
                raise DataError(f"{path}: the data sets have changed since the sweep began; expected a new folder")
        else:
            strangers = sorted(each.name for each in path.iterdir() if not each.name.startswith("."))
            if strangers:
                raise DataError(f"{path} holds {strangers[0]}: expected an empty folder, or one of this sweep")
            self.manifest = {
                "name": specification.name,
                "seed": specification.seed,
                "specification": table,
                "digest": digest,
                "data": data,
                "cells": count_cells(specification),
                "versions": _versions(),
                "machine": {"platform": platform.platform(), "processor": platform.machine(), "cpus": os.cpu_count()},
                "sessions": [],
                "finished": None,
            }
            write_json(path / MANIFEST, self.manifest)
        (path / PARTS).mkdir(exist_ok=True)

    @property
    def finished(self) -> bool:
        """Whether the final table is there."""
        return (self.path / RESULTS).exists()

    def done(self) -> set[str]:
        """Names of the parts that are there."""
        return {each.stem for each in (self.path / PARTS).glob("*.parquet")}

    def write_part(self, name: str, content: bytes) -> None:
        """A part appears complete or not at all."""
        with atomic_file(self.path / PARTS / f"{name}.parquet", overwrite=True) as file:
            file.write(content)

    def note_session(self, session: dict[str, Any]) -> None:
        """Add who ran what to the manifest."""
        self.manifest["sessions"].append(session)
        write_json(self.path / MANIFEST, self.manifest)

    def finish(self) -> None:
        """Parts that became the final table are removed; may be repeated."""
        if self.manifest["finished"] is None:
            self.manifest["finished"] = now()
            write_json(self.path / MANIFEST, self.manifest)
        for each in (self.path / PARTS).iterdir():
            each.unlink()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """One runner at a time, where the system can lock files; what a killed one left half-written goes."""
        with (self.path / ".lock").open("w") as lock:
            try:
                import fcntl

                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except ImportError:
                pass
            except OSError:
                raise StateError(
                    f"{self.path}: another sweep writes to this folder; expected it to end first"
                ) from None
            for place in (self.path, self.path / PARTS):
                for each in place.glob(".*.tmp"):
                    each.unlink()
            yield
