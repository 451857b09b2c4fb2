"""The list of mutations: TOML files in ``tables/``, one an area.

A ``[[file]]`` has a path and the tests that run for its mutations.  A ``[[file.mutation]]`` has a name, the old text,
which stands once in the file (whatever its local variables are called: :mod:`benchmarks.mutation.matching`), and the
new one; tests of its own, if need be; and the reason if it ``survives``.  ``within`` names the function or class if
the old text fits several places; ``beside`` is a text with local names that the new one uses and the old one lacks.
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path

from benchmarks.mutation.matching import plant

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
    within: str = ""
    beside: str = ""

    @property
    def label(self) -> str:
        return f"{self.file.removesuffix('.py').removeprefix('kernels/')}: {self.name}"

    def plant(self, source: str) -> str:
        """The file's text with the mistake in it."""
        return plant(source, self.old, self.new, self.within, self.beside)

    def problem(self, root: Path) -> str | None:
        """Why the mutation cannot be planted in this checkout, or None."""
        path = root / self.file
        if not path.is_file():
            return f"no file {self.file}"
        if self.old == self.new:
            return "the new text is the old one"
        try:
            self.plant(path.read_text())
        except ValueError as error:
            return f"{self.file}: {error}"
        missing = [test for test in self.tests if not _stands(root, test)]
        return f"no test {', '.join(missing)}" if missing else None


def _stands(root: Path, test: str) -> bool:
    """True if there is a file of tests, or a test with that name in it."""
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
