"""What data sets of all kinds share: a label, where they come from, and their files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from fastdp.datasets import catalogue

KINDS = ("generator", "file", "download")


@dataclass(frozen=True)
class Origin:
    """A named source.

    Attributes
    ----------
    name : str
        The label in results.
    kind : "generator", "file" or "download"
        Where it comes from.
    source : str
        The generator's name, the file's path, or the catalogue's name.
    """

    name: str
    kind: str
    source: str

    def describe(self) -> dict[str, Any]:
        """Everything but the label, for keys and hashes."""
        return {name: value for name, value in self.table().items() if name != "name"}

    def table(self) -> dict[str, Any]:
        """All fields, as plain values."""
        found = {each.name: getattr(self, each.name) for each in fields(self) if each.compare}
        return {**found, "parameters": dict(found["parameters"])} if "parameters" in found else found

    def files(self, folder: Path) -> Sequence[Path]:
        """What is read, in a folder for those that have no absolute path; empty for what is made up."""
        if self.kind == "generator":
            return []
        return [catalogue.path_of(self.source) if self.kind == "download" else folder / self.source]

    def stamp(self, folder: Path) -> tuple[int, ...]:
        """Changes when a file does, were its time set back: times, sizes and numbers of those that are there."""
        found = [path.stat() for path in self.files(folder) if path.exists()]
        return tuple(
            number for each in found for number in (each.st_mtime_ns, each.st_ctime_ns, each.st_size, each.st_ino)
        )
