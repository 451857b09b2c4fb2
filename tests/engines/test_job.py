"""Jobs: state as bytes and nothing in it, replays, and what is refused."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastdp
from fastdp.counters import BinaryTree, RunningCounts
from fastdp.engines import Job
from fastdp.errors import BudgetError, DataError, ParameterError, StateError
from fastdp.perturbers import Blocks, Hierarchy
from fastdp.streams import fleet as streams
from tests.engines.scenes import assert_altered_replay, counting_job, expected, make_job, make_rows, write_secret

SECRET = bytes(range(32))
#: The parameters of ``make_job``.
JOB: dict[str, Any] = {"epsilon": 1.0, "bound": 10.0, "threshold": 5.0, "max_range": 256}


def split(rows: list[Any]) -> tuple[list[str], list[float]]:
    return [row[0] for row in rows], [row[1] for row in rows]


@pytest.mark.parametrize("cuts", [[], [100], [1, 2, 3, 150]])
def test_states_lead_on_whatever_batches_and_workers(tmp_path: Path, cuts: list[int]) -> None:
    job, rows = make_job(tmp_path), make_rows(200)
    state, out = None, []
    for begin, end in zip([0, *cuts], [*cuts, 200], strict=True):
        # As another worker: pickled, with no fleet open.
        worker = pickle.loads(pickle.dumps(job))  # noqa: S301
        state, which, published = worker.advance(state, *split(rows[begin:end]))
        assert which.tolist() == list(range(end - begin))
        out += published.tolist()
    assert out == list(expected(job, rows).values())


def test_a_state_that_comes_back_gives_the_same_again(tmp_path: Path) -> None:
    job, rows = make_job(tmp_path), make_rows(90)
    state, _, first = job.advance(None, *split(rows[:30]))
    one = job.advance(state, *split(rows[30:]))
    # The state was taken on; given again, it must not be the fleet that went on.
    two = job.advance(state, *split(rows[30:]))
    assert one[2].tolist() == two[2].tolist()
    assert [*first, *one[2]] == list(expected(job, rows).values())


@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
def test_what_is_published_behind_a_holdout_has_its_row(tmp_path: Path) -> None:
    job = make_job(tmp_path, threshold=None, holdout=20, max_range=64)
    ids = ["a" if k % 2 else "b" for k in range(42)]
    assert job.advance(None, ids, [k / 9.0 for k in range(42)])[1].tolist() == [40, 41]


def test_fleets_of_a_job_share_nothing(tmp_path: Path) -> None:
    job, rows = make_job(tmp_path), make_rows(60)
    ids, values = split(rows)
    one, state = job.fleet(), job.advance(None, ids, values)[0]
    wanted = one.publish(ids, values)[1].tolist()
    # A second life has other noise, in this fleet alone.
    one.forget(one.ids)
    assert one.publish(ids, values)[1].tolist() != wanted
    assert job.fleet().publish(ids, values)[1].tolist() == wanted
    again = job.from_bytes(state)
    again.forget(again.ids)
    assert len(job.from_bytes(state)) == len(one)
    assert job.fleet().publish(ids, values)[1].tolist() == wanted
    parts = job.fleet().split(2)
    owner = int(one.part_of(ids[:1], 2)[0])
    assert parts[owner].publish(ids[:1], values[:1])[1].tolist() == wanted[:1]
    with pytest.raises(DataError, match="belongs to part"):
        parts[1 - owner].publish(ids[:1], values[:1])


def test_streams_are_those_of_publishers(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    key = fastdp.Key.from_bytes(SECRET).within("job", "meters").of_stream("m1")
    alone = fastdp.Adaptive(epsilon=1.0, bound=10.0, threshold=5.0, max_range=256, key=key)
    values = [float(k % 9) for k in range(80)]
    assert job.advance(None, ["m1"] * 80, values)[2].tolist() == alone.publish(values).tolist()


@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
def test_rows_within_a_holdout_are_named(tmp_path: Path) -> None:
    job = make_job(tmp_path, threshold=None, holdout=20, max_range=64)
    ids = ["a", "b"] * 15 + ["a"] * 10
    state, rows, out = job.advance(None, ids, np.linspace(0.0, 9.0, 40))
    assert [ids[k] for k in rows] == ["a"] * 5
    assert rows.tolist() == [35, 36, 37, 38, 39]
    assert job.advance(state, ["b", "a"] * 6, [1.0] * 12)[1].tolist() == [1, 3, 5, 7, 9, 10, 11]
    assert out.size == 5


def test_neither_pickles_nor_states_hold_the_secret(tmp_path: Path) -> None:
    job, rows = make_job(tmp_path), make_rows(50)
    state, _, _ = job.advance(None, *split(rows))
    for data in (pickle.dumps(job), state):
        for secret in (SECRET, job.key.reveal()):
            assert secret not in data
            assert secret.hex().encode() not in data
    others = [
        Job(job.machine, name="others", secret=job.secret),
        Job(job.machine, name="meters", secret=lambda: bytes(32)),
    ]
    for other in others:
        with pytest.raises(StateError, match="wrong key"):
            other.advance(state, *split(rows))
    with pytest.raises(StateError, match="authentication failed"):
        job.advance(state[:-1] + bytes([state[-1] ^ 1]), *split(rows))


#: A change of the job, and what the state then says of it.
CHANGED: list[tuple[dict[str, Any], str]] = [
    ({"epsilon": 0.1}, r"epsilon = 1\.0 in the state, 0\.1 asked for"),
    ({"bound": 20.0}, r"bound = 10\.0 in the state, 20\.0 asked for"),
    ({"threshold": 4.0}, r"threshold\.theta = 5\.0 in the state, 4\.0 asked for"),
    ({"contributions": 3}, "contributions = 1 in the state, 3 asked for"),
    ({"max_range": 512}, "max_range = 256 in the state, 512 asked for"),
    ({"perturber": Blocks(focus=8)}, r"perturber\.focus = None in the state, 8 asked for"),
    ({"nonfinite": "zero"}, "nonfinite = 'raise' in the state, 'zero' asked for"),
]


@pytest.mark.parametrize("version", [None, "0.0.1"])
def test_a_state_of_other_parameters_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str | None
) -> None:
    """Before a row is consumed, whichever fastdp wrote it."""
    rows = make_rows(60)
    with monkeypatch.context() as patch:
        if version:
            patch.setattr(streams, "__version__", version)
        state = make_job(tmp_path).advance(None, *split(rows[:30]))[0]
    for change, said in CHANGED:
        job = make_job(tmp_path, **change)
        for _ in range(2):
            with pytest.raises(StateError, match=said):
                job.advance(state, *split(rows[30:]))
    with pytest.raises(StateError, match="mechanism = 'Schedule' in the state, 'CountMachine' asked for"):
        Job(RunningCounts(BinaryTree(64), 1.0), name="meters", secret=write_secret(tmp_path)).from_bytes(state)
    _, _, out = make_job(tmp_path).advance(state, *split(rows[30:]))
    assert out.tolist() == [value for place, value in expected(make_job(tmp_path), rows).items() if place >= 30]


def noise(job: Job, state: bytes | None, increments: list[int]) -> list[float]:
    """Of released running sums."""
    out = job.advance(state, ["a"] * len(increments), increments)[2]
    return list(np.diff(out - np.cumsum(increments)))


@pytest.mark.parametrize("place", [0, 199])
def test_altered_replays_have_independent_noise(tmp_path: Path, place: int) -> None:
    """As Spark's state and a user's program do: each time another worker reads the bytes."""
    job = counting_job(tmp_path)
    state, ids, found = job.advance(None, ["a"] * 10, [1] * 10)[0], ["a"] * 320, []
    for value in (1, 1, 2):
        worker = pickle.loads(pickle.dumps(job))  # noqa: S301
        out = worker.advance(state, ids, [*[1] * place, value, *[1] * (319 - place)])[2]
        found.append((out - 10.0).tolist())
    assert_altered_replay(found[0], found[1], found[2], place)


def test_two_jobs_have_independent_noise(tmp_path: Path) -> None:
    job = counting_job(tmp_path)
    other = Job(job.machine, name="others", secret=job.secret)
    one, two = (noise(each, None, [1] * 300) for each in (job, other))
    assert sum(a == b for a, b in zip(one, two, strict=True)) < 10


def test_a_ledger_refuses_a_second_job(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    ledger = fastdp.Ledger(tmp_path / "budget", limit_epsilon=5.0)
    job.register(ledger, stream="meters")
    with pytest.raises(BudgetError, match="same secret and composition"):
        pickle.loads(pickle.dumps(job)).register(ledger, stream="elsewhere")  # noqa: S301
    # What publishes streams of the job elsewhere has their noise.
    for other in (fastdp.Fleet(job.machine, key=job.key), fastdp.Adaptive(**JOB, key=job.key.of_stream("m1"))):
        with pytest.raises(BudgetError, match="same secret and composition"):
            ledger.spend(other, stream="elsewhere")
    assert ledger.spent("meters").epsilon == 1.0
    Job(job.machine, name="others", secret=job.secret).register(ledger, stream="meters")
    assert ledger.spent("meters").epsilon == 2.0


def test_mechanisms_whose_noise_is_not_bound_are_refused() -> None:
    for publisher in (
        fastdp.ToPS(epsilon=1.0, bound=10.0, holdout=16, max_range=64),
        fastdp.StreamPublisher(threshold=5.0, perturber=Hierarchy(prune=0), epsilon=1.0, bound=10.0, max_range=64),
    ):
        with pytest.raises(ParameterError, match="bound to the values"):
            Job(publisher, name="a", secret="env:A")
    Job(RunningCounts(BinaryTree(64), 1.0), name="a", secret="env:A")


def test_secrets_are_found_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = make_job(tmp_path).machine
    with pytest.raises(ParameterError, match="shipped and logged") as refused:
        Job(machine, name="a", secret=b"0123456789abcdef" * 2)  # type: ignore[arg-type]
    assert "0123456789abcdef" not in str(refused.value)
    with pytest.raises(ParameterError, match="a text that no other job has"):
        Job(machine, name="", secret="env:A")
    monkeypatch.setenv("FASTDP_TEST_SECRET", SECRET.hex())
    keys = [
        Job(machine, name="a", secret=secret).key  # type: ignore[arg-type]
        for secret in (write_secret(tmp_path), "env:FASTDP_TEST_SECRET", lambda: SECRET)
    ]
    assert keys[0] == keys[1] == keys[2]
    monkeypatch.setenv("FASTDP_TEST_SECRET", "f00d")
    open_to_all = tmp_path / "open"
    open_to_all.write_bytes(SECRET)
    open_to_all.chmod(0o640)
    with pytest.raises(ParameterError, match=r"secret: file .*group or others have access \(mode 0640\)"):
        _ = Job(machine, name="a", secret=f"file:{open_to_all}").key
    wrong = {"env:FASTDP_TEST_SECRET": "32 bytes", "file:/nowhere": "a readable file", "env:NONE": "64"}
    for secret, said in wrong.items():
        with pytest.raises(ParameterError, match=said) as found:
            _ = Job(machine, name="a", secret=secret).key
        assert "f00d" not in str(found.value)


PYFLINK = """
import builtins, sys, types
home = types.ModuleType("worker")
sys.modules["worker"] = home
class Custom:
    def print(self, *given): ...
Custom.print.__module__ = "worker"
builtins.print = Custom().print
import fastdp.engines.job
"""


def test_kernels_load_where_a_worker_has_replaced_print() -> None:
    """As PyFlink's workers do; numba looks for it in its module."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", PYFLINK], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()[-1000:]
