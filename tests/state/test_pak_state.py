"""PAK's state files: exact continuation from any cut, one noise for a prefix, clear errors for every damage."""

from __future__ import annotations

import json
import os
import stat as file_modes
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fastdp
from fastdp.errors import DataError, StateError
from fastdp.state import journal
from fastdp.state.sealed_file import StateFile
from fastdp.thresholds import Fixed, NoisyMax, PAKQuantile

KEY = bytes(range(32))
LENGTH, HOLDOUT = 1500, 600


def stream() -> np.ndarray:
    return np.random.default_rng(102).gamma(2.0, 8.0, LENGTH)


def make(**options) -> fastdp.PAK:
    settings = {"epsilon": 1.0, "delta": 1e-6, "bound": 200, "length": LENGTH, "holdout": HOLDOUT, "seed": 8}
    return fastdp.PAK(**{**settings, **options})


@pytest.mark.parametrize("options", [{}, {"lag_sums": True, "average": 50}, {"threshold": Fixed(40.0)}])
@pytest.mark.parametrize("cut", [0, 1, 300, 599, 600, 601, 1111, 1500])
@pytest.mark.parametrize("key", [None, KEY])
def test_a_loaded_publisher_continues_exactly(tmp_path: Path, cut: int, options: dict, key: bytes | None) -> None:
    values, path = stream(), tmp_path / "stream.state"
    whole = make(**options).publish(values)
    publisher = make(**options)
    first = publisher.publish(values[:cut])
    publisher.save(path, key)
    loaded = fastdp.PAK.load(path, key)
    assert (loaded.n_seen, loaded.threshold, loaded.running_sum) == (
        cut,
        publisher.threshold,
        publisher.running_sum,
    )
    assert loaded.guarantee == publisher.guarantee
    assert np.array_equal(np.concatenate([first, loaded.publish(values[cut:])]), whole)
    assert file_modes.S_IMODE(path.stat().st_mode) == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["stream.state"]


def test_every_cut_is_a_place_to_go_on_from(tmp_path: Path) -> None:
    """One kept file, loaded anew for every chunk; chunks end before, at and behind the end of the hold-out."""
    values, path = stream(), tmp_path / "kept"
    make(average=7).keep(path)
    parts, begin = [], 0
    for size in (0, 1, 598, 1, 1, 37, 262, 600):
        parts.append(fastdp.PAK.load(path).publish(values[begin : begin + size]))
        begin += size
    assert begin == LENGTH
    assert np.array_equal(np.concatenate(parts), make(average=7).publish(values))


def test_the_key_is_real_and_hidden(tmp_path: Path) -> None:
    publisher = make(seed=None)
    publisher.publish(stream()[:700])
    publisher.save(tmp_path / "s", "a passphrase")
    loaded = fastdp.PAK.load(tmp_path / "s", "a passphrase")
    assert not loaded.guarantee.simulated
    assert np.array_equal(loaded.publish(stream()[700:]), publisher.publish(stream()[700:]))
    assert publisher._key.reveal().hex().encode() not in (tmp_path / "s").read_bytes()
    with pytest.raises(StateError, match="wrong key"):
        fastdp.PAK.load(tmp_path / "s", "another")


@pytest.mark.parametrize("begin", [250, 600, 900])
def test_a_replay_takes_the_same_values_only(tmp_path: Path, begin: int) -> None:
    values, path = stream(), tmp_path / "kept"
    whole = make().publish(values)
    publisher = make()
    publisher.keep(path, KEY)
    published = [publisher.publish(values[:begin])]
    publisher.publish(values[begin:1000])
    replayed = fastdp.PAK.load(path, KEY, replay=True)
    assert replayed.n_seen == begin
    altered = values.copy()
    altered[begin + 20] += 1.0
    for wrong, words in (
        (altered[begin:1000], "differs"),
        (values[begin : begin + 10], "at least the"),
        (values[begin + 1 : 1001], "differs"),
    ):
        with pytest.raises(DataError, match=words):
            replayed.publish(wrong)
    for call in (replayed.save, replayed.keep):
        with pytest.raises(StateError, match="waits for a replay"):
            call(tmp_path / "other")
    published.append(replayed.publish(values[begin:1200]))
    published.append(fastdp.PAK.load(path, KEY).publish(values[1200:]))
    assert np.array_equal(np.concatenate(published), whole)


def test_a_stale_file_and_a_second_writer_are_refused(tmp_path: Path) -> None:
    values, path = stream(), tmp_path / "kept"
    first = make()
    first.keep(path)
    first.publish(values[:700])
    stale = path.read_bytes()
    second = fastdp.PAK.load(path)
    second.publish(values[700:800])
    with pytest.raises(StateError, match="another publisher"):
        first.publish(values[700:800] + 1.0)
    assert first.n_seen == 700
    path.write_bytes(stale)
    with pytest.raises(StateError, match="stale copy"):
        second.publish(values[800:900])
    with pytest.raises(StateError, match="exists"):
        make().save(path)


def test_a_failed_write_consumes_nothing(tmp_path: Path) -> None:
    values, folder = stream(), tmp_path / "folder"
    folder.mkdir()
    publisher = make()
    publisher.keep(folder / "kept")
    parts = [publisher.publish(values[:300])]
    for begin, end in ((300, 500), (500, 700), (700, LENGTH)):
        (folder / "kept").rename(tmp_path / "aside")
        with pytest.raises(StateError):
            publisher.publish(values[begin:end] + 1.0)
        assert publisher.n_seen == begin
        (tmp_path / "aside").rename(folder / "kept")
        parts.append(publisher.publish(values[begin:end]))
    assert np.array_equal(np.concatenate(parts), make().publish(values))


@pytest.mark.parametrize(("first", "second"), [(200, 450), (450, 900), (700, 1000)])
def test_a_killed_process_loses_nothing(tmp_path: Path, first: int, second: int) -> None:
    program = (
        "import os, numpy as np, fastdp\n"
        f"v = np.random.default_rng(102).gamma(2.0, 8.0, {LENGTH})\n"
        f"p = fastdp.PAK(1.0, 1e-6, 200, {LENGTH}, holdout={HOLDOUT}, seed=8)\n"
        f"p.keep({str(tmp_path / 'kept')!r})\n"
        f"p.publish(v[:{first}]); p.publish(v[{first}:{second}])\n"
        "os.kill(os.getpid(), 9)\n"
    )
    environment = {**os.environ, "PYTHONPATH": ":".join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, check=False)
    assert done.returncode == -9
    values = stream()
    whole = make().publish(values)
    (tmp_path / "backup").write_bytes((tmp_path / "kept").read_bytes())
    for name, replay, begin in (("kept", False, second), ("backup", True, first)):
        publisher = fastdp.PAK.load(tmp_path / name, replay=replay, moved=name == "backup")
        assert publisher.n_seen == begin
        assert np.array_equal(publisher.publish(values[begin:]), whole[max(0, begin - HOLDOUT + 1) :])


def test_damage_within_an_authentic_file_is_one_error(tmp_path: Path) -> None:
    values = stream()
    publisher = make(average=5)
    publisher.publish(values[:300])
    publisher.save(tmp_path / "early")
    publisher.publish(values[300:800])
    publisher.save(tmp_path / "late")
    contents = {name: journal.read(StateFile(tmp_path / name))[0] for name in ("early", "late")}
    damages = [
        ("early", ("now", "n_seen"), 299),
        ("early", ("now", "lag"), "?"),
        ("early", ("now", "counter"), contents["late"]["now"]["counter"]),
        ("late", ("now", "counter"), None),
        ("late", ("now", "n_seen"), 801),
        ("late", ("now", "counter", "seen"), 10**6),
        ("late", ("now", "counter", "above"), [0]),
        ("late", ("now", "counter", "total"), 2**70),
        ("late", ("now", "counter", "theta_steps"), 10**15),
        ("late", ("now", "counter", "theta_steps"), 0),
        ("late", ("now", "recent"), "?"),
        ("late", ("composition", "average"), 2),
        ("late", ("composition", "epsilon"), "many"),
        ("late", ("composition", "threshold", "name"), "os"),
        ("late", ("secret",), "zz"),
    ]
    for number, (name, place, value) in enumerate(damages):
        broken = json.loads(json.dumps(contents[name]))
        inner = broken
        for step in place[:-1]:
            inner = inner[step]
        inner[place[-1]] = value
        path = tmp_path / f"broken{number}"
        StateFile(path).write(json.dumps(broken).encode(), None)
        with pytest.raises(StateError, match="damaged"):
            fastdp.PAK.load(path)


def test_whose_file_it_is(tmp_path: Path) -> None:
    make().save(tmp_path / "pak")
    with pytest.raises(StateError, match="holds a PAK: expected a ToPS"):
        fastdp.ToPS.load(tmp_path / "pak")
    fastdp.ToPS(epsilon=1.0, bound=200, seed=1).save(tmp_path / "tops")
    with pytest.raises(StateError, match="holds a ToPS: expected a PAK"):
        fastdp.PAK.load(tmp_path / "tops")
    with pytest.raises(StateError, match="no chunk to replay"):
        fastdp.PAK.load(tmp_path / "pak", replay=True)


def test_the_parts_come_back(tmp_path: Path) -> None:
    for number, rule in enumerate((NoisyMax(c=30.0), PAKQuantile(p=0.9, delta=1e-7), Fixed(9.0))):
        publisher = make(threshold=rule, tail_factor=1.5, share=0.7, resolution=0.25)
        publisher.save(tmp_path / str(number))
        assert fastdp.PAK.load(tmp_path / str(number))._plan == publisher._plan


def test_a_long_lag_is_written_once_it_is_known_only(tmp_path: Path) -> None:
    """Once the threshold stands, the file forgets the hold-out."""
    publisher = make()
    publisher.keep(tmp_path / "kept")
    publisher.publish(stream()[:599])
    early = (tmp_path / "kept").stat().st_size
    publisher.publish(stream()[599:700])
    publisher.publish(stream()[700:800])
    assert (tmp_path / "kept").stat().st_size < early / 2
