"""Rules about imports: a light facade, one file that names the compiler, no global randomness in kernels."""

from __future__ import annotations

import ast
import importlib
import tomllib
from pathlib import Path

import fastdp
from tests.shared import run_python

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "kernels" / "fastdp_kernels"
#: The laboratory may use all of these: error classes, and the noise table of couplings.
OPEN = {"fastdp.errors", "fastdp.noise.binding"}


def run(program: str, *flags: str) -> str:
    return run_python(*flags, "-c", program, check=True).stdout


def test_importing_fastdp_loads_nothing_heavy() -> None:
    heavy = "numba scipy cryptography matplotlib pandas polars pyarrow click tqdm numpy"
    program = f"import sys, fastdp; print([name for name in {heavy.split()!r} if name in sys.modules])"
    assert run(program).strip() == "[]"
    assert run(f"import fastdp.cli; {program}").strip() in ("[]", "['click']")


def test_streams_import_no_package_of_an_extra() -> None:
    """Arrays, publishers, bytes of states and the command line on arrays do without what only extras install."""
    program = """
import sys, numpy as np, fastdp
fastdp.release(np.ones(2000), epsilon=1, bound=10).sum([0], [10])
publisher = fastdp.Adaptive(epsilon=1.0, bound=10.0, threshold=5.0)
publisher.publish(np.ones(10))
fastdp.Adaptive.from_bytes(publisher.to_bytes(b"k" * 32), b"k" * 32)
fastdp.Fleet(fastdp.Adaptive(epsilon=1.0, bound=10.0, threshold=5.0)).publish([1, 2], [1.0, 2.0])
fastdp.release_many(np.ones((3, 50)), 1.0, bound=10.0, threshold=5.0)
extras = "matplotlib pandas polars pyarrow narwhals dask pooch shapely geopandas msgspec duckdb opendp"
print([name for name in extras.split() if name in sys.modules])
"""
    assert run(program).strip() == "[]"


def test_every_public_name_loads() -> None:
    for name in fastdp.__all__:
        assert getattr(fastdp, name) is not None
    assert set(fastdp.__all__) <= set(dir(fastdp))
    program = "import fastdp; fastdp.ToPS; fastdp.release; print(callable(fastdp.release))"
    assert run(program).strip() == "True"


def test_three_files_name_the_compiler() -> None:
    for source in KERNELS.rglob("*.py"):
        names = set()
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names.add((node.module or "").partition(".")[0])
        assert source.name in ("_caching.py", "_jit.py", "_lanes.py") or not names & {"numba", "llvmlite"}
        assert not names & {"random", "secrets", "fastdp"}
        code = source.read_text()
        assert "np.random" not in code
        assert "fastmath=" not in code


def test_both_packages_are_typed() -> None:
    assert (ROOT / "fastdp" / "py.typed").exists()
    assert (KERNELS / "py.typed").exists()


def test_readme_python_runs() -> None:
    """The Python in README works as printed, and warns of nothing."""
    text = (ROOT / "README.md").read_text()
    blocks = [part.split("```")[0] for part in text.split("```python\n")[1:]]
    assert blocks
    for block in blocks:
        run(block, "-W", "error")


def test_a_kernel_is_compiled_anew_when_any_kernel_file_changed() -> None:
    """The cache's stamp covers all kernel sources, so a changed helper is never served stale."""
    from fastdp_kernels import _caching
    from fastdp_kernels.noise import double_double, guarded_log
    from fastdp_kernels.streams import hierarchy_nodes, online_pass, ranges, threshold_choice

    for dispatcher in (
        hierarchy_nodes.make_consistent,
        double_double.draw_double_double,
        guarded_log.draw_double,
        threshold_choice.choose_rows,
        online_pass.sum_blocks,
        ranges.sum_ranges,
    ):
        assert dispatcher._cache._own._cache_file._source_stamp == _caching._STAMP


def test_the_laboratory_uses_public_names() -> None:
    """But for those of ``lab_imports.toml``, each with its reason; a row that is no longer needed must go."""
    found: dict[str, set[str]] = {}
    for source in (ROOT / "lab" / "fastdp_lab").rglob("*.py"):
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.Import):
                assert not any(alias.name.startswith(("fastdp.", "fastdp_kernels")) for alias in node.names), source
            module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            if module.partition(".")[0] in ("fastdp", "fastdp_kernels") and module not in OPEN:
                public = getattr(importlib.import_module(module), "__all__", ())
                names = {alias.name for alias in node.names} - {*public}
                if names:
                    found.setdefault(module, set()).update(names)
    listed = tomllib.loads((Path(__file__).parent / "lab_imports.toml").read_text())
    assert all(row["reason"] for row in listed.values())
    rows = {(module, name) for module, row in listed.items() for name in row["names"]}
    used = {(module, name) for module, names in found.items() for name in names}
    assert not used - rows, f"not public, so the laboratory may not import them: {sorted(used - rows)}"
    assert not rows - used, f"no longer imported; remove them from lab_imports.toml: {sorted(rows - used)}"
