"""State files: exact continuation, one noise for a prefix, and a clear error for every damage."""

from __future__ import annotations

import copy
import subprocess
from pathlib import Path

import numpy as np
import pytest

import fastdp
from fastdp.errors import ParameterError, StateError
from tests.shared import python, run_python

KEY = bytes(range(32))


def stream(n: int = 6000) -> np.ndarray:
    return np.random.default_rng(1).gamma(2.0, 8.0, n)


def make(**options) -> fastdp.ToPS:
    return fastdp.ToPS(**{"epsilon": 0.5, "bound": 200, "holdout": 1000, "max_range": 1024, "seed": 4, **options})


def test_a_real_key_survives() -> None:
    rest = stream()[3000:]
    # A stream among many stays that stream: its noise must not become another one's.
    for options in ({}, {"key": fastdp.Key.random().of_stream(7)}):
        publisher = make(seed=None, **options)
        publisher.publish(stream()[:3000])
        state = publisher.to_bytes(KEY)
        loaded = fastdp.StreamPublisher.from_bytes(state, KEY)
        assert not loaded.guarantee.simulated
        assert np.array_equal(loaded.publish(rest), publisher.publish(rest))
        assert publisher._key.reveal().hex().encode() not in state


def test_the_size_of_a_sealed_file_does_not_tell_how_many_events_wait(tmp_path: Path) -> None:
    sizes = set()
    for n in (0, 1, 2, 30, 400):
        waiting = fastdp.AdaptivePHDStream(fastdp.points.Box([0, 0], [1, 1]), 1.0, key=KEY, period=8)
        path = tmp_path / str(n)
        waiting.advance(None)
        waiting.keep(path, KEY)
        waiting.advance(np.random.default_rng(n).random((n, 2)))
        sizes.add(path.stat().st_size)
        again = fastdp.AdaptivePHDStream.load(path, KEY)
        assert np.array_equal(again.sample(), waiting.sample())
    # A state and one record, each a power of two.
    assert sizes == {2 * 8192}
    large = fastdp.AdaptivePHDStream(fastdp.points.Box([0, 0], [1, 1]), 1.0, key=KEY)
    large.advance(np.random.default_rng(1).random((30_000, 2)))
    large.keep(tmp_path / "large", KEY)
    size = (tmp_path / "large").stat().st_size
    assert size > 8192
    assert size & (size - 1) == 0


def test_every_altered_bit_is_noticed(tmp_path: Path) -> None:
    for key in (None, KEY):
        path = tmp_path / "s"
        path.unlink(missing_ok=True)
        publisher = make(holdout=10)
        publisher.publish(stream()[:50])
        publisher.keep(path, key)
        raw = path.read_bytes()
        for position in range(len(raw)):
            damaged = bytearray(raw)
            damaged[position] ^= 1 << position % 8
            path.write_bytes(bytes(damaged))
            with pytest.raises(StateError):
                fastdp.ToPS.load(path, key)
        for size in (0, 1, 10, 38, 39, len(raw) - 1):
            path.write_bytes(raw[:size])
            with pytest.raises(StateError):
                fastdp.ToPS.load(path, key)


def test_clear_errors(tmp_path: Path) -> None:
    """Those of every object are in ``test_saved_objects``."""
    path = tmp_path / "s"
    path.write_text("something else, long enough to hold a header of thirty-nine bytes")
    with pytest.raises(StateError, match="no fastdp state file"):
        fastdp.ToPS.load(path)
    path.unlink()
    make().keep(path, KEY)
    with pytest.raises(StateError, match="32 bytes"):
        fastdp.ToPS.load(path, "word")
    with pytest.raises(ParameterError, match="32 bytes"):
        fastdp.ToPS.load(path, b"short")
    with pytest.raises(ParameterError, match="empty"):
        make().keep(tmp_path / "other", "")


def test_a_killed_process_loses_nothing(tmp_path: Path) -> None:
    """A child publishes with kept state and is killed without warning; the parent carries on."""
    program = (
        "import os, sys, numpy as np, fastdp\n"
        "v = np.random.default_rng(1).gamma(2.0, 8.0, 6000)\n"
        "p = fastdp.ToPS(epsilon=.5, bound=200, holdout=1000, max_range=1024, seed=4)\n"
        f"p.keep({str(tmp_path / 'kept')!r})\n"
        "p.publish(v[:1700]); p.publish(v[1700:3000])\n"
        "os.kill(os.getpid(), 9)\n"
    )
    assert run_python("-c", program).returncode == -9
    values = stream()
    whole = make().publish(values)
    (tmp_path / "backup").write_bytes((tmp_path / "kept").read_bytes())
    assert np.array_equal(fastdp.ToPS.load(tmp_path / "kept").publish(values[3000:]), whole[2000:])
    again = fastdp.ToPS.load(tmp_path / "backup", replay=True, moved=True)
    assert again.n_seen == 1700
    assert np.array_equal(again.publish(values[1700:]), whole[700:])


@pytest.mark.slow
def test_two_processes_on_one_file_never_both_publish(tmp_path: Path) -> None:
    program = (
        "import sys, numpy as np, fastdp\n"
        "p = fastdp.ToPS.load(sys.argv[1])\n"
        "print('loaded', flush=True)\n"
        "sys.stdin.readline()\n"
        "try:\n    p.publish(np.full(100, float(sys.argv[2]))); print('published')\n"
        "except fastdp.errors.StateError: print('refused')\n"
    )
    pipe = subprocess.PIPE
    for trial in range(5):
        path = tmp_path / f"kept{trial}"
        publisher = make(seed=None)
        publisher.keep(path)
        publisher.publish(stream()[:1500])
        children = [
            subprocess.Popen(**python("-c", program, path, value), stdin=pipe, stdout=pipe, text=True)
            for value in (0.0, 50.0)
        ]
        # Whoever loads behind the other's write goes on from there, rightly.
        assert [child.stdout.readline() for child in children] == ["loaded\n"] * 2
        for child in children:
            child.stdin.write("go\n")
            child.stdin.flush()
        said = sorted(child.communicate()[0].strip() for child in children)
        assert said == ["published", "refused"]


def test_a_passphrase_costs_its_derivation_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cryptography.hazmat.primitives.kdf import scrypt

    derivations = []
    original = scrypt.Scrypt
    monkeypatch.setattr(scrypt, "Scrypt", lambda **options: derivations.append(1) or original(**options))
    passphrase = f"only in {tmp_path}"
    publisher = make()
    publisher.keep(tmp_path / "kept", passphrase)
    for start in range(0, 2000, 200):
        publisher.publish(stream()[start : start + 200])
    assert len(derivations) == 1
    assert fastdp.ToPS.load(tmp_path / "kept", passphrase).n_seen == 2000
    other = make()
    other.keep(tmp_path / "saved", passphrase)
    assert fastdp.ToPS.load(tmp_path / "saved", passphrase).n_seen == 0
    assert fastdp.ToPS.from_bytes(other.to_bytes(passphrase), passphrase).n_seen == 0
    assert len(derivations) == 1
    with pytest.raises(StateError, match="wrong key"):
        fastdp.ToPS.load(tmp_path / "saved", passphrase + ".")
    assert len(derivations) == 2


def test_what_a_killed_writer_left_is_removed(tmp_path: Path) -> None:
    """It holds secrets, and a position that was never taken."""
    publisher = make()
    publisher.keep(tmp_path / "kept")
    leftover, bystander = tmp_path / ".kept.0123456789abcdef.tmp", tmp_path / ".kept.mine.tmp"
    leftover.write_bytes(b"half a state")
    bystander.touch()
    fastdp.ToPS.load(tmp_path / "kept").publish(stream()[:1500])
    assert not leftover.exists()
    assert bystander.exists()


def test_a_release_is_kept_and_its_holdout_forgotten(tmp_path: Path) -> None:
    for publisher in (make(), fastdp.PAK(1.0, 1e-6, 200, 6000, holdout=1000, seed=8)):
        path, fresh = tmp_path / type(publisher).__name__, copy.deepcopy(publisher)
        publisher.keep(path)
        publisher.publish(stream()[:999])
        early = path.stat().st_size
        publisher.publish(stream()[999:1100])
        publisher.publish(stream()[1100:1200])
        assert path.stat().st_size < early / 2 or isinstance(publisher, fastdp.ToPS)
        path = tmp_path / "whole"
        path.unlink(missing_ok=True)
        fresh.keep(path)
        released = fresh.release(stream()).values
        assert np.array_equal(type(fresh).load(path, replay=True).release(stream()).values, released)


def test_a_file_keeps_its_protection(tmp_path: Path) -> None:
    make().keep(tmp_path / "s", KEY)
    loaded = fastdp.ToPS.load(tmp_path / "s", KEY)
    for key in (None, "word"):
        with pytest.raises(StateError, match="expected key = 32 bytes"):
            loaded.keep(tmp_path / "s", key)
    loaded.keep(tmp_path / "s", KEY)
