"""State files, replays, copies and interrupts of publishers whose blocks follow the stream."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fastdp.errors import DataError, StateError
from fastdp.state import codec, driver
from fastdp.state.sealed_file import StateFile
from fastdp.streams.methods import Adaptive
from fastdp.streams.pipelines import Step
from fastdp_kernels.streams import adaptive_pass
from fastdp_kernels.streams import block_lengths as b
from tests.noise_values import bound_key
from tests.state.adaptive_publishers import CLOSINGS, fixed, make, stream


def test_a_release_is_kept_too(tmp_path: Path) -> None:
    publisher = make()
    publisher.keep(tmp_path / "kept")
    release = publisher.release(stream())
    assert np.array_equal(Adaptive.load(tmp_path / "kept", replay=True).publish(stream()), release.values)
    assert np.array_equal(release.values, make().publish(stream()))


def test_a_refused_chunk_changes_nothing() -> None:
    values = stream()
    whole, publisher, parts, at = make().publish(values), make(), [], 0
    for stop in (90, 540, 560, 600, 640, 1200, 6000):
        spoiled = values[at:stop].copy()
        spoiled[-1] = np.nan
        before = publisher._machine.pack(publisher._state)
        with pytest.raises(DataError, match=rf"chunk\[{stop - at - 1}\]: not a finite"):
            publisher.publish(spoiled)
        assert publisher._machine.pack(publisher._state) == before
        parts.append(publisher.publish(values[at:stop]))
        at = stop
    assert np.array_equal(np.concatenate(parts), whole)


def test_nan_counts_as_zero_where_that_is_asked_for() -> None:
    values = stream()
    holes = np.arange(0, values.size, 97)
    zeros, missing = values.copy(), values.copy()
    zeros[holes] = 0.0
    missing[holes] = np.nan
    one, other = (make(nonfinite=rule, seed=None, key=bound_key(4)) for rule in ("zero", "raise"))
    assert np.array_equal(one.publish(missing), other.publish(zeros))


#: Numbers of a memory.
NUMBERS = b.MEMORY.itemsize // 8


class Interrupted(BaseException):
    """Stands for KeyboardInterrupt, which may come between any two steps."""


@pytest.mark.parametrize("begin", [0, 300, 536, 570, 600])
@pytest.mark.parametrize("where", ["noise", "emit"])
def test_an_interrupt_shows_nothing_that_could_be_used_again(
    monkeypatch: pytest.MonkeyPatch, where: str, begin: int
) -> None:
    """Before the position is recorded nothing is in ``out``; after it, the place in the stream is taken."""
    values, whole = stream(1300), make().publish(stream(1300))
    publisher = make()
    publisher.publish(values[:begin])
    out = np.full(900, 123.0)
    home, step = {"noise": (adaptive_pass, "sum_bound"), "emit": (Step, "emit")}[where]

    def interrupt(*arguments: object, **options: object) -> None:
        raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(home, step, interrupt)
        with pytest.raises(Interrupted):
            publisher.publish(values[begin:900], out=out)
    assert (out == 123.0).all()
    assert publisher.n_seen == (begin if where == "noise" else 900)
    rest = publisher.publish(values[publisher.n_seen :])
    assert np.array_equal(rest, whole[whole.size - rest.size :])


def packed(memory: np.ndarray) -> str:
    return codec.pack(memory.view(np.float64), "<f8")


def tampered(memory: np.ndarray, place: str, value: float) -> str:
    changed = memory.copy()
    changed[place] = value
    return packed(changed)


@pytest.mark.parametrize("n", [100, 560, 600, 1111, 6000])
@pytest.mark.parametrize("closing", CLOSINGS)
def test_positions_out_of_range_are_refused(n: int, closing: str) -> None:
    publisher = make(closing=closing)
    publisher.publish(stream(n))
    good, memory = publisher._machine.pack(publisher._state), publisher._progress.smoother
    assert publisher._machine.pack(publisher._machine.unpack(good, publisher._key)) == good
    changes: dict[str, list[object]] = {
        "n_seen": [-1, float(n), "7"], "cycle": [1.0, -1], "held": [-1, 0.0], "blocks": [-1, 3.0],
        "filled": [-1, 2.0, *([2**40] if memory.size else [])], "open_sum": [1.0],
        "theta_steps": [-1, 1.5, 2**62 if memory.size else 10], "prediction": ["x", 3],
        "smoother": [packed(np.zeros(3)), packed(np.zeros(NUMBERS + 1)), packed(np.full(NUMBERS, np.inf))],
    }  # fmt: skip
    if memory.size:
        position_, exponent = memory["position"][0], memory["exponent"][0]
        changes["smoother"] += [packed(np.empty(0))] + [
            tampered(memory, place, value)
            for place, values in {
                "position": [position_ + 0.5, -1.0, np.nan, np.inf], "decided": [position_ + 1.0, -1.0, 0.5],
                "exponent": [-1.0, exponent + 0.5, 1e18, np.nan], "last": [-1.0, 0.5, 41.0, 1e18, np.nan],
                "energies": [np.nan], "level": [np.nan],
            }.items()
            for value in values
        ]  # fmt: skip
    else:
        changes["smoother"].append(packed(np.zeros(NUMBERS)))
    for name, wrong in changes.items():
        for value in wrong:
            with pytest.raises(ValueError, match=r"out of range|in place of"):
                publisher._machine.unpack({**good, name: value}, publisher._key)


def test_damage_within_an_authentic_file_is_one_error(tmp_path: Path) -> None:
    publisher = fixed()
    publisher.publish(stream(1000))
    publisher.save(tmp_path / "s")
    content = driver.read_file(StateFile(tmp_path / "s"))[0]
    memory = publisher._progress.smoother
    for number, (name, value) in enumerate(
        [
            ("smoother", packed(np.zeros(3))),
            ("smoother", "?"),
            ("smoother", tampered(memory, "last", 1e9)),
            ("smoother", tampered(memory, "position", np.nan)),
            ("blocks", -1),
            ("filled", -1),
        ]
    ):
        path = tmp_path / f"broken{number}"
        broken = {**content, "now": {**content["now"], name: value}}
        StateFile(path).write(json.dumps(broken).encode(), None)
        with pytest.raises(StateError, match="damaged"):
            Adaptive.load(path)


def test_a_replay_that_cuts_the_stream_differently_is_refused(tmp_path, monkeypatch) -> None:
    """Another fastdp may choose other lengths: the same noise would meet other sums."""
    from fastdp.perturbers import block_noise

    values, path = stream(), tmp_path / "state"
    publisher = make()
    publisher.keep(path)
    publisher.publish(values[:2000])
    expected = publisher.publish(values[2000:5000])
    monkeypatch.setattr(block_noise, "PRIOR_DRIFT", 50.0)
    other = type(publisher).load(path, replay=True)
    with pytest.raises(StateError, match=r"^the replay leads to another position"):
        other.publish(values[2000:5000])
    monkeypatch.undo()
    same = type(publisher).load(path, replay=True)
    assert np.array_equal(same.publish(values[2000:5000]), expected)
