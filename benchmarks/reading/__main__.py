"""``python -m benchmarks reading``: code lines of the modules that each door imports, directly or not."""

import ast
from pathlib import Path

import grimp

import fastdp

#: Door of each family: what a reader wants to follow, and the module that begins it.
DOORS = {
    "one discrete Laplace draw": "noise.public_draws",
    "ToPS, Adaptive (streams)": "streams.methods",
    "PAK (streams)": "streams.pak",
    "release (streams)": "streams.array_release",
    "Fleet (streams)": "streams.fleet",
    "ToPL (local)": "local.topl",
    "client (local)": "local.client",
    "PHDStream (points)": "points.phdstream",
    "totals (tables)": "tables.functions",
    "Windows (tables)": "tables.windows",
    "Ledger (ledger)": "ledger.ledger",
}
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef


def code_lines(text: str) -> int:
    """Lines without docstrings, comments and blank ones."""
    documented = [
        node for node in ast.walk(ast.parse(text)) if isinstance(node, DOCUMENTED) and ast.get_docstring(node)
    ]
    docstrings = sum((node.body[0].end_lineno or 0) - node.body[0].lineno + 1 for node in documented)
    return sum(1 for line in text.splitlines() if line.strip() and not line.strip().startswith("#")) - docstrings


def main() -> None:
    root = Path(fastdp.__file__).parents[1]
    graph = grimp.build_graph("fastdp", exclude_type_checking_imports=True, cache_dir=None)
    for reader, door in DOORS.items():
        modules = {f"fastdp.{door}", *graph.find_upstream_modules(f"fastdp.{door}")}
        # A module's packages run before it does.
        modules |= {name.rsplit(".", up)[0] for name in modules for up in (1, 2) if name.count(".") > up}
        paths = [root.joinpath(*name.split(".")) for name in modules]
        files = [path / "__init__.py" if path.is_dir() else path.with_suffix(".py") for path in paths]
        print(f"{reader:26} {sum(code_lines(path.read_text()) for path in files):6,}  {len(files):3} files")


if __name__ == "__main__":
    main()
