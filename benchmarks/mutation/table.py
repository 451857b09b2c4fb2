"""The list of mutations: TOML files in ``tables/``, one an area.

A ``[[file]]`` has a path and the tests that run for its mutations.  A ``[[file.mutation]]`` has a name, the exact old
text, which occurs once in the file, and the new one; tests of its own, if need be; and the reason if it ``survives``.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

TABLES = Path(__file__).parent / "tables"


@dataclass(frozen=True)
class Mutation:
    """One planted mistake."""

    area: str
    file: str
    name: str
    old: str
    new: str
    tests: tuple[str, ...]
    survives: str = ""

    @property
    def label(self) -> str:
        return f"{self.file.removesuffix('.py').removeprefix('kernels/')}: {self.name}"

    def problem(self, root: Path) -> str | None:
        """Why the mutation cannot be planted in this checkout, or None."""
        path = root / self.file
        found = path.read_text().count(self.old) if path.is_file() else 0
        if found != 1:
            return f"the old text occurs {found} times in {self.file}: expected once"
        if self.old == self.new:
            return "the new text is the old one"
        missing = [test for test in self.tests if not _stands(root, test)]
        return f"no test {', '.join(missing)}" if missing else None


def _stands(root: Path, test: str) -> bool:
    """Whether there is a file of tests, or a test with that name in it."""
    file, _, name = test.partition("::")
    path = root / file
    return path.is_file() and (not name or f"def {name.partition('[')[0]}(" in path.read_text())


def mutations() -> list[Mutation]:
    """All of them, area by area."""
    found = []
    for table in sorted(TABLES.glob("*.toml")):
        for file in tomllib.loads(table.read_text())["file"]:
            for entry in file["mutation"]:
                tests = tuple(entry.pop("tests", file.get("tests", ())))
                found.append(Mutation(area=table.stem, file=file["path"], tests=tests, **entry))
    return found
