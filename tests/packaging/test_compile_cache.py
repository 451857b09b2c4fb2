"""Damaged, foreign and shared caches of compiled kernels: never an error, never another result."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fastdp_kernels._caching import LEVELS, processor_has

ROOT = Path(__file__).resolve().parents[2]
#: The kernels of USE, and what it returns.
KERNELS, RESULT = ["prefix_blocks", "round_values"], [0, 4, 0, 0.0, 3.0]

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked, to import Numba once")

USE = """
def use():
    from fastdp_kernels.streams import online_pass, ranges
    counts, sums = np.zeros(3, np.int64), np.zeros(2)
    online_pass.round_values(np.array([0.0, 4.0, 0.0]), 1.0, 10.0, counts)
    ranges.prefix_blocks(np.ones(3), np.array([0, 3]), 3, np.array([0, 2]), sums)
    return counts.tolist() + sums.tolist()
"""
RELEASE = """
import fastdp
# Loaded here, so that no process begins with it.
publish = fastdp.release
numba.njit(lambda x: x + 1.0)(1.0)

def use():
    released = publish(np.arange(3000.0) % 50, epsilon=1.0, bound=100, seed=5)
    return [float.hex(released.sum(0, 3000).item()), *map(float.hex, released.values)]
"""
#: In a new process each: changes a file, calls `use`, and tells results, compiled kernels and warnings.
DRIVER = """
import json, os, random, resource, shutil, sys, tempfile, warnings
from pathlib import Path
import numba, numpy as np
import fastdp_kernels

here = Path(os.environ["NUMBA_CACHE_DIR"])

def entries(name=""):
    return sorted(here.rglob(f"*{name}-*.nbc"))

def process(change=None, *arguments):
    path = Path(tempfile.mktemp())
    child = os.fork()
    if child:
        return child, path
    compiled = []
    fastdp_kernels.on_compile = lambda name, folder: compiled.append(name)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            if change is not None:
                change(*arguments)
            result = use()
        except BaseException as error:
            result = repr(error)
    texts = [[str(each.message), each.filename] for each in told]
    path.write_text(json.dumps([result, sorted(compiled), texts]))
    os._exit(0)

def end(child, path):
    assert os.waitpid(child, 0)[1] == 0, "killed"
    found = json.loads(path.read_text())
    path.unlink()
    return found

def run(*change):
    return end(*process(*change))

def empty(path):
    path.write_bytes(b"")

def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])

def garble(path):
    path.write_bytes(random.Random(1).randbytes(path.stat().st_size))

def flip(path, at=None):
    content = bytearray(path.read_bytes())
    content[random.randrange(len(content)) if at is None else at] ^= 1
    path.write_bytes(bytes(content))
"""


def drive(program: str, cache: Path, home: Path = ROOT, **environment: str) -> Any:
    paths = os.pathsep.join([str(home), str(home / "kernels")])
    own = {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1", "NUMBA_CACHE_DIR": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", DRIVER + program],
        env={**os.environ, **own, **environment}, capture_output=True, text=True, check=False, cwd=home,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


DAMAGES = """
def swap(path):
    shutil.copyfile(entries("round_values")[0], path)

def folder(path):
    path.unlink()
    path.mkdir()

def circle(path):
    path.unlink()
    path.symlink_to(path)

def opened(path):
    path.chmod(0o666)

first, found = run(), []
[path] = entries("prefix_blocks")
for change in (empty, cut, garble, flip, swap, circle, opened, Path.unlink, folder):
    found.append([change.__name__, run(change, path), run()])
print(json.dumps([first, found]))
"""


@pytest.mark.slow
def test_a_damaged_entry_is_compiled_again_and_replaced(tmp_path: Path) -> None:
    first, found = drive(USE + DAMAGES, tmp_path)
    assert first == [RESULT, KERNELS, []]
    for damage, (result, compiled, told), after in found:
        assert (result, compiled) == (RESULT, ["prefix_blocks"]), damage
        assert {where for _, where in told} <= {"<string>"}, damage
        texts = [text.partition(" (")[0] for text, _ in told]
        if damage == "folder":
            assert texts == ["a compiled kernel cannot be read", "compiled kernels cannot be kept"]
            assert (after[0], after[1], len(after[2])) == (RESULT, ["prefix_blocks"], 2), "a folder is not removed"
            continue
        # The entry of another kernel is as whole as one of older sources, which is replaced without a word.
        assert texts == ([] if damage in ("swap", "unlink") else ["a compiled kernel cannot be read"]), damage
        assert after == [RESULT, [], []], damage


SPOILT = """
def fill():
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))

full = run(fill)
left = sorted(map(str, here.rglob("*.nb*")))
several = [process() for _ in range(4)]
several = [end(*each) for each in several]
print(json.dumps([full, left, several, run()]))
"""


@pytest.mark.slow
def test_a_full_disk_and_many_first_processes(tmp_path: Path) -> None:
    full, left, several, after = drive(USE + SPOILT, tmp_path)
    assert full[:2] == [RESULT, KERNELS]
    assert [text.partition(" (")[0] for text, _ in full[2]] == ["compiled kernels cannot be kept"]
    assert left == [], "no part of an entry stays"
    assert {json.dumps([result, told]) for result, _, told in several} == {json.dumps([RESULT, []])}
    assert after == [RESULT, [], []]


def test_an_entry_of_another_numba_is_replaced_without_a_word(tmp_path: Path) -> None:
    other = drive("numba.__version__ += '.other'\n" + USE + "print(json.dumps(run()))", tmp_path)
    again, after = drive(USE + "print(json.dumps([run(), run()]))", tmp_path)
    assert again == other == [RESULT, KERNELS, []]
    assert after == [RESULT, [], []]
    assert len(list(tmp_path.rglob("*.nbc"))) == len(KERNELS), "replaced"


@pytest.fixture
def installation(tmp_path: Path) -> Path:
    """A copy of the kernels with a file wherever a cache beside them would be."""
    package = tmp_path / "home" / "kernels" / "fastdp_kernels"
    shutil.copytree(
        ROOT / "kernels" / "fastdp_kernels", package, ignore=shutil.ignore_patterns("__pycache__", "_compiled")
    )
    for folder in {source.parent for source in package.rglob("*.py")}:
        (folder / "__pycache__").write_text("in the way")
    (tmp_path / "user").write_text("in the way")
    return tmp_path / "home"


@pytest.mark.slow
def test_a_folder_that_others_can_write_is_not_used(tmp_path: Path, installation: Path) -> None:
    cache, places = tmp_path / "cache", {"XDG_CACHE_HOME": str(tmp_path / "user"), "HOME": str(tmp_path)}
    before = os.umask(0o000)
    try:
        first = drive(USE + "print(json.dumps(run()))", cache, installation, **places)
    finally:
        os.umask(before)
    assert first == [RESULT, KERNELS, []]
    [folder] = {path.parent for path in cache.rglob("*.nbc")}
    modes = {stat.S_IMODE(path.stat().st_mode) & 0o022 for path in (folder, *folder.iterdir())}
    assert modes == {0}, "whatever the umask is"
    spoilt = [(0o775, -1, f"chmod go-w {folder}"), (0o757, -1, f"chmod go-w {folder}")]
    # The superuser alone can give folders away.
    for mode, owner, reason in spoilt + [(0o755, 12345, "it belongs to user 12345")] * (os.geteuid() == 0):
        folder.chmod(mode)
        os.chown(folder, owner, -1)
        result, compiled, told = drive(USE + "print(json.dumps(run()))", cache, installation, **places)
        assert (result, compiled) == (RESULT, KERNELS)
        assert [text.partition(" (")[0] for text, _ in told] == [
            "a folder of compiled kernels is not used", "compiled kernels cannot be kept",
        ]  # fmt: skip
        assert {where for _, where in told} == {"<string>"}
        assert reason in told[0][0]


def test_writers_of_the_sources_may_write_what_is_compiled(tmp_path: Path, installation: Path) -> None:
    """As with a umask of 002, the default of many systems."""
    for folder in (installation / "kernels").rglob("*"):
        folder.chmod(0o775)
        if folder.name == "__pycache__":
            folder.unlink()
            folder.mkdir()
            folder.chmod(0o775)
    places = {"NUMBA_CACHE_DIR": "", "XDG_CACHE_HOME": str(tmp_path / "user"), "HOME": str(tmp_path)}
    first, again = drive(USE + "print(json.dumps([run(), run()]))", tmp_path, installation, **places)
    assert first == [RESULT, KERNELS, []]
    assert again == [RESULT, [], []]


BESIDE = """
shipped = sorted(Path(fastdp_kernels.__file__).parent.rglob("_compiled/*prefix_blocks-*.nbc"))
[path] = entries("prefix_blocks")
one = run(cut, path)
print(json.dumps([len(shipped), one, run(cut, shipped[0])]))
"""


@pytest.mark.skipif(not processor_has(*LEVELS["x86-64-v3"]), reason="a processor without AVX2")
@pytest.mark.slow
def test_a_damaged_entry_does_not_hide_the_shipped_one(tmp_path: Path, installation: Path) -> None:
    cache = tmp_path / "cache"
    assert drive(USE + "print(json.dumps(run()))", cache, installation)[:2] == [RESULT, KERNELS]
    level = {"NUMBA_CPU_NAME": "x86-64-v3", "NUMBA_CPU_FEATURES": ""}
    ships = "fastdp_kernels.ships = True\n" + USE + "print(json.dumps(run()))"
    assert drive(ships, tmp_path / "none", installation, **level)[:2] == [RESULT, KERNELS]
    n_shipped, read, compiled = drive(USE + BESIDE, cache, installation)
    assert n_shipped == 1
    assert read[:2] == [RESULT, []]
    assert compiled[:2] == [RESULT, ["prefix_blocks"]]
    for _, _, told in (read, compiled):
        assert [text.partition(" (")[0] for text, _ in told] == ["a compiled kernel cannot be read"]


RANDOM_DAMAGES = """
random.seed(47)
first, found = run(), []
for number in range(12):
    path, damage = random.choice(entries()), (empty, cut, garble, flip)[number % 4]
    whole = path.read_bytes()
    found.append([damage.__name__, path.name, run(damage, path), run() if number % 6 == 0 else None])
    if not found[-1][2][1]:
        # Another round that compiles a caller would read it.
        path.write_bytes(whole)
print(json.dumps([first, found]))
"""


@pytest.mark.slow
def test_damages_of_a_first_release(tmp_path: Path) -> None:
    """Each of four damages three times, as each compiles a kernel."""
    first, found = drive(RELEASE + RANDOM_DAMAGES, tmp_path)
    assert isinstance(first[0], list), first[0]
    assert len(first[0]) == 1 + 3000
    assert len(first[1]) >= 8
    assert first[2] == []
    assert len(found) == 12
    for damage, name, (result, compiled, told), after in found:
        assert result == first[0], (damage, name)
        assert [kernel for kernel in compiled if f".{kernel}-" in name] == compiled, name
        # An entry of a kernel that only other kernels call is not read.
        assert len(compiled) == len(told) <= 1, (damage, name)
        assert all(name in text and file == "<string>" for text, file in told)
        assert after in (None, [first[0], [], []])
    assert sum(len(told) for _, _, (_, _, told), _ in found) >= 10
