"""``python -m benchmarks GROUP ...`` runs a group; without a group, lists them."""

import ast
import runpy
import sys
from pathlib import Path

from benchmarks.shared import run_part

HERE = Path(__file__).parent
#: Groups whose modules have a ``run`` each.
PARTS = ("accuracy", "speed", "tracking")


def groups() -> dict[str, str]:
    """Packages here that have a ``__main__`` or parts, and the first line of their docstrings; none is imported."""
    folders = sorted(path for path in HERE.glob("*/") if path.name in PARTS or (path / "__main__.py").exists())
    docstrings = {
        folder.name: ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) for folder in folders
    }
    return {name: (text or "").partition("\n")[0] for name, text in docstrings.items()}


def main() -> None:
    known = groups()
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name in known:
        del sys.argv[1]
        if name in PARTS:
            raise SystemExit(run_part(name))
        runpy.run_module(f"benchmarks.{name}", run_name="__main__")
        return
    print("python -m benchmarks GROUP ...; GROUP --help describes its options\n")
    print("\n".join(f"  {group:10} {summary}" for group, summary in known.items()))
    if name not in ("", "-h", "--help"):
        raise SystemExit(f"\nGROUP {name!r} is unknown: expected one of {', '.join(known)}")


if __name__ == "__main__":
    main()
