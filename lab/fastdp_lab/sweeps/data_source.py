"""What data sets of all kinds share: a label, where they come from, their files, and a cache of loaded ones."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from fastdp import validation
from fastdp.errors import ParameterError
from fastdp_lab.datasets import catalogue
from fastdp_lab.sweeps.reading import text
from fastdp_lab.sweeps.study import Truth

KINDS = ("generator", "file", "download")
#: Data sets that a process holds in memory.
MAX_LOADED = 4


def plain(record: Any) -> dict[str, Any]:
    """The fields of a dataclass that identify it, by name."""
    return {each.name: getattr(record, each.name) for each in fields(record) if each.compare}


@dataclass(frozen=True)
class DataSource:
    """A named source.

    ``name`` is the label in results; ``kind`` one of ``KINDS``; ``source`` the generator's name, the file's path, or
    the catalogue's name.
    """

    #: The name of the :class:`Study` that runs on it.
    study: ClassVar[str]

    name: str
    kind: str
    source: str

    def describe(self) -> dict[str, Any]:
        """Everything but the label, for keys and hashes."""
        return {name: value for name, value in self.table().items() if name != "name"}

    def table(self) -> dict[str, Any]:
        """All fields, as plain values."""
        return plain(self)

    def files(self, folder: Path) -> Sequence[Path]:
        """The files to read, in a folder for those without an absolute path; empty for synthetic data."""
        if self.kind == "generator":
            return []
        return [catalogue.path_of(self.source) if self.kind == "download" else folder / self.source]

    def stamp(self, folder: Path) -> tuple[int, ...]:
        """Times, sizes and inode numbers of the files; changes with a file even if its time is set back."""
        found = [path.stat() for path in self.files(folder) if path.exists()]
        return tuple(
            number for each in found for number in (each.st_mtime_ns, each.st_ctime_ns, each.st_size, each.st_ino)
        )

    def load(self, folder: Path) -> Truth:
        """The data with the exact answers to queries; files without an absolute path are in the folder."""
        raise NotImplementedError


def read_source(
    table: Mapping[str, Any], place: str, generators: Sequence[str], downloads: Sequence[str]
) -> tuple[str, str]:
    """Kind and source of a ``[[datasets]]`` table, which has exactly one of the keys ``KINDS``."""
    there = [key for key in KINDS if key in table]
    if len(there) != 1:
        raise ParameterError(f"{place} has {', '.join(there) or 'no source'}: expected one of {', '.join(KINDS)}")
    kind = there[0]
    if kind == "file":
        return kind, text(f"{place}.file", table["file"])
    return kind, validation.choice(f"{place}.{kind}", table[kind], generators if kind == "generator" else downloads)


def load_truth(data_set: DataSource, folder: Path) -> Truth:
    """A loaded data set, from the process's cache if its files have not changed since."""
    # The lock: threads that need the same data wait for one of them to load it.
    with _LOADING:
        return _load(data_set, folder, data_set.stamp(folder))


_LOADING = threading.Lock()


@lru_cache(maxsize=MAX_LOADED)
def _load(data_set: DataSource, folder: Path, stamp: tuple[int, ...]) -> Truth:
    return data_set.load(folder)
