"""Cost of compiling: one specialisation of each kernel, a cache wherever one can be, any thread first."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fastdp_kernels._caching import LEVELS, processor_has

ROOT = Path(__file__).resolve().parents[2]
TOUR = Path(__file__).with_name("tour.py")


def run(program: str | Path, *, home: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    code = ["-c", program] if isinstance(program, str) else [str(program)]
    paths = os.pathsep.join([str(home), str(home / "kernels"), str(home / "lab")])
    return subprocess.run(
        [sys.executable, *code],
        env={**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
        cwd=home,
    )


#: Long columns of int64 are converted by the pass that publishes them; short ones of floats are not read-only.
READ_WHOLE_NUMBERS = {"fixed_pass.publish_rows"}


def test_every_kernel_is_compiled_once_whatever_users_bring() -> None:
    done = run(TOUR)
    assert done.returncode == 0, done.stderr
    signatures = json.loads(done.stdout)
    assert {name for name, found in signatures.items() if len(found) > 1} == READ_WHOLE_NUMBERS
    assert {len(signatures[name]) for name in READ_WHOLE_NUMBERS} == {2}
    met = {name.split(".")[0] for name, found in signatures.items() if found}
    assert {"online_pass", "fixed_pass", "ranges", "threshold_choice", "guarded_log", "privtree"} <= met
    assert {"adaptive_pass", "block_lengths", "revision"} <= met


FIRST_RELEASE = """
import json, sys
import numpy as np
import fastdp
from numba.core import event

names = []


class Names(event.Listener):
    def on_start(self, compiling):
        function = compiling.data["dispatcher"].py_func
        names.append(f"{function.__module__}.{function.__name__}")

    def on_end(self, compiling):
        pass


fastdp.ToPS
event.register("numba:compile", Names())
if METHOD == "tops":
    release = fastdp.ToPS(0.5, 100, 1024, 3072, seed=1).release(np.arange(4096.0) % 50)
else:
    release = fastdp.release(np.arange(4096.0) % 50, epsilon=0.5, bound=100, seed=1)
release.sum([0], [1000])
print(json.dumps(names))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("method", "most"), [("tops", 25), ("array", 25)])
def test_a_first_release_compiles_what_it_runs(tmp_path: Path, method: str, most: int) -> None:
    """Not the text of errors, which Numba compiles for an array put into another, nor what only events need.

    Each function takes Numba 15 to 400 ms, so that their number is the time.
    """
    done = run(FIRST_RELEASE.replace("METHOD", repr(method)), NUMBA_CACHE_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    names = json.loads(done.stdout)
    assert 10 < len(names) <= most
    assert not [name for name in names if ".unicode." in name]
    assert not {name.rpartition(".")[2] for name in names} & {"choose_event_exponent", "sum_signed"}


USE_A_KERNEL = """
import warnings
import numpy as np
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    from fastdp_kernels.streams import online_pass, ranges
    counts = np.zeros(3, np.int64)
    online_pass.round_values(np.array([0.0, 4.0, 0.0]), 1.0, 10.0, counts)
    ranges.prefix_blocks(np.ones(3), np.array([0, 3]), 3, np.array([0, 2]), np.zeros(2))
assert counts.tolist() == [0, 4, 0]
print([(str(each.message), each.filename) for each in told if each.category is RuntimeWarning])
"""


@pytest.fixture
def installation(tmp_path: Path) -> Path:
    """A copy of the kernels beside which no cache can be made: a file lies where its folder would be."""
    package = tmp_path / "home" / "kernels" / "fastdp_kernels"
    shutil.copytree(
        ROOT / "kernels" / "fastdp_kernels", package, ignore=shutil.ignore_patterns("__pycache__", "*.nb?")
    )
    for folder in {source.parent for source in package.rglob("*.py")}:
        (folder / "__pycache__").write_text("in the way, for root too")
    return tmp_path / "home"


def places(tmp_path: Path) -> dict[str, str]:
    return {"NUMBA_CACHE_DIR": "", "XDG_CACHE_HOME": str(tmp_path / "cache"), "HOME": str(tmp_path)}


def test_a_read_only_installation_caches_with_the_user(tmp_path: Path, installation: Path) -> None:
    done = run(USE_A_KERNEL, home=installation, **places(tmp_path))
    assert (done.stdout, done.stderr) == ("[]\n", "")
    assert list((tmp_path / "cache").rglob("*round_values*.nbc"))


def test_no_place_for_a_cache_is_said_once(tmp_path: Path, installation: Path) -> None:
    (tmp_path / "cache").write_text("in the way")
    done = run(USE_A_KERNEL, home=installation, **places(tmp_path))
    assert done.stdout.count("compiled kernels cannot be kept") == 1, done.stderr
    assert "NUMBA_CACHE_DIR" in done.stdout
    assert "'<string>')]" in done.stdout, "the line of the caller"


def test_a_filled_cache_that_is_read_only_is_read(tmp_path: Path, installation: Path) -> None:
    chosen = {**places(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "chosen")}
    assert run(USE_A_KERNEL, home=installation, **chosen).stdout == "[]\n"
    # Files of the superuser can always be written: the test by which Numba tells must fail of itself.
    program = f"""
import tempfile
def refuse(**options):
    raise PermissionError
tempfile.TemporaryFile = refuse
import fastdp_kernels
compiled = []
fastdp_kernels.on_compile = lambda name, folder: compiled.append(name)
{USE_A_KERNEL}
print(compiled)"""
    done = run(program, home=installation, **chosen)
    assert (done.stdout, done.stderr) == ("[]\n[]\n", "")
    assert not (tmp_path / "cache").exists()


def copied(tmp_path: Path) -> Path:
    left_out = shutil.ignore_patterns("__pycache__", "_compiled", "*.nb?")
    for package in ("fastdp", "kernels/fastdp_kernels", "lab/fastdp_lab"):
        shutil.copytree(ROOT / package, tmp_path / "copy" / package, ignore=left_out)
    return tmp_path / "copy"


FIRST_PAK = """
import fastdp_kernels
compiled = []
fastdp_kernels.on_compile = lambda name, folder: compiled.append(name)
import fastdp
fastdp.PAK(1.0, 1e-6, 50.0, 2000, holdout=500, seed=1).release([k % 50.0 for k in range(2000)]).sum(0, 5)
print(len(compiled))"""


@pytest.mark.slow
@pytest.mark.skipif(not processor_has(*LEVELS["x86-64-v3"]), reason="a processor without AVX2")
def test_kernels_of_a_level_are_found_by_processors_that_have_it(tmp_path: Path) -> None:
    home, empty = copied(tmp_path), {"NUMBA_CACHE_DIR": str(tmp_path / "empty")}
    command = "from fastdp.cli import main; main(['compile', '--level', 'x86-64-v3', 'pak'])"
    done = run(command, home=home)
    assert done.returncode == 0, done.stderr
    assert {path.parent.name for path in home.rglob("*.nbc")} == {"_compiled"}
    assert run(FIRST_PAK, home=home, **empty).stdout == "0\n"
    assert run(FIRST_PAK, home=home, **empty, NUMBA_CPU_NAME="x86-64-v4", NUMBA_CPU_FEATURES="").stdout == "0\n"
    # A processor below the level or without AVX, and sources that changed, compile for themselves.
    assert run(FIRST_PAK, home=home, **empty, NUMBA_ENABLE_AVX="0").stdout != "0\n"
    assert run(FIRST_PAK, home=home, **empty, NUMBA_CPU_NAME="generic").stdout != "0\n"
    source = home / "kernels" / "fastdp_kernels" / "tables" / "__init__.py"
    source.write_text(source.read_text() + "# changed\n")
    assert run(FIRST_PAK, home=home, **empty).stdout != "0\n"


#: Names load, and kernels come from the cache or the compiler, on first use: here in every thread at once.
FIRST_CALLS = """
import sys, threading
import numpy as np

values = np.arange(3000.0) % 50
values.flags.writeable = False
sys.setswitchinterval(1e-5)


def release(k):
    import fastdp
    from fastdp.smoothers import Mean, Median

    if k == 4:
        return fastdp.Adaptive(1.0, 100.0, 500, 512, seed=1).release(values).revised.values
    if k == 3:
        return fastdp.release_many(values.reshape(10, -1), 1.0, 100.0, seed=1).values
    options = ({"smoother": Mean()}, {"smoother": Median()}, {"prune": 0})[k]
    return fastdp.ToPS(1.0, 100.0, holdout=500, max_range=512, fan_out=4, seed=1, **options).release(values).values


def first(k):
    gate.wait()
    results[k] = release(k % 5)


gate, results = threading.Barrier(15), [None] * 15
threads = [threading.Thread(target=first, args=(k,)) for k in range(15)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
for k, result in enumerate(results):
    assert result is not None and np.array_equal(result, release(k % 5))
"""


def test_first_calls_from_many_threads_agree() -> None:
    done = run(FIRST_CALLS)
    assert done.returncode == 0, done.stderr
