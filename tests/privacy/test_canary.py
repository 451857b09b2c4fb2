"""No message shows a private value: a canary goes into every argument of every public call and into every command."""

from __future__ import annotations

import logging
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
import tqdm

import fastdp
from fastdp import thresholds
from fastdp.errors import FastDPError
from fastdp_lab.repetitions import repeat
from tests.privacy import canary, canary_arguments, canary_commands
from tests.privacy.canary import CANARY, LENGTH, TEXT, WHOLE
from tests.privacy.canary_arguments import BOUND, POINT_PUBLISHERS, PUBLISHERS

pytestmark = pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
RULES = (
    *(thresholds.NoisyMax(), thresholds.ScaleFree(), thresholds.PAKQuantile(delta=1e-6), thresholds.SquareWave()),
    *(thresholds.SmoothQuantile(noise="cauchy"), thresholds.TruePercentile(0.9)),
)

Case = tuple[str, Callable[[], Any]]


def judge(cases: Iterable[Case], kinds: tuple[type[BaseException], ...], least: int, taken: bool = False) -> None:
    """Nothing that comes out of a case shows the canary; at least so many fail, and all of them if none is taken."""
    failed: Counter[str] = Counter()
    passed, odd, shown = [], [], []
    for name, call in cases:
        error, lines = canary.witness(call)
        shown += [f"{name}: {line[-400:]}" for line in canary.leaks(lines)[:1]]
        if error is None:
            passed.append(name)
        else:
            failed[name.partition(":")[0]] += 1
            if not isinstance(error, kinds) or (isinstance(error, SystemExit) and error.code != 1):
                odd.append(f"{name}: {error!r}"[:400])
    assert not shown, f"{len(shown)} show the canary:\n" + "\n".join(shown[:20])
    assert not odd, f"{len(odd)} failed otherwise:\n" + "\n".join(odd[:20])
    assert taken or not passed, f"{len(passed)} did not fail:\n" + "\n".join(passed[:20])
    assert failed.total() >= least
    print(f"\n{len(failed)} entry points, {failed.total():,} failing inputs, 0 leaks")


def argument_cases(folder: Path, inputs: Callable[[str, str], Iterable[tuple[str, Any]]]) -> Iterator[Case]:
    """Every public call with a wrong input in the place of each of its arguments."""
    for name in canary_arguments.names():
        call = canary_arguments.Call(name, folder)
        call.make()
        for argument in call.parameters:
            for kind, bad in inputs(name, argument.name):
                make = lambda call=call, name=argument.name, bad=bad: call.make(name, bad)  # noqa: E731
                yield f"{name}({argument.name}=): {kind}", make


#: Of loaders of files that are not there.
ERRORS = (FastDPError, FileNotFoundError)


@pytest.mark.slow
def test_no_call_shows_the_canary(tmp_path: Path) -> None:
    # Foreign errors of calls without a check of their own, such as a text in place of bytes, show nothing either.
    judge(argument_cases(tmp_path, canary.inputs), (*ERRORS, TypeError, ValueError), 4000, taken=True)


@pytest.mark.slow
def test_no_argument_shows_a_column(tmp_path: Path) -> None:
    """A column in place of each argument: an error of fastdp, or taken as data, and no entry."""
    matplotlib.use("Agg")
    judge(argument_cases(tmp_path, lambda *_: canary.mistaken().items()), ERRORS, 5000, taken=True)


def test_no_publisher_shows_the_canary_behind_its_first_values() -> None:
    """Nor in a release, repeated ones, and what a rule looks at."""

    def cases() -> Iterator[Case]:
        task = thresholds.ThresholdTask(1.0, BOUND, 8, 64, 1.0)

        def publish(make: Callable[[], Any], bad: Any) -> None:
            publisher = make()
            publisher.publish([1.0, 2.0, 3.0])
            try:
                publisher.publish(bad)
            finally:
                print(repr(publisher), publisher)

        for kind in canary.columns():
            one = lambda kind=kind: canary.columns()[kind]  # noqa: E731
            for name, make in PUBLISHERS.items():
                yield f"{name}.publish: {kind}", lambda make=make, one=one: publish(make, one())
                yield f"{name}.release: {kind}", lambda make=make, one=one: make().release(one())
                if isinstance(make(), fastdp.StreamPublisher):
                    yield f"repeat: {kind}", lambda make=make, one=one: repeat(make(), one(), 2, progress=True)
            many = lambda one=one: fastdp.release_many([[1.0, 2.0, 3.0], one()], 1.0, BOUND)  # noqa: E731
            yield f"release_many: {kind}", many

        def observed() -> Iterator[Case]:
            for kind, bad in canary.columns().items():
                for rule in RULES:
                    yield f"{rule!r}: {kind}", lambda rule=rule, bad=bad: rule.start(task).observe(bad)

        # Rules take what publishers have checked.
        kinds = (FastDPError, TypeError, AttributeError, ValueError, OverflowError)
        judge(observed(), kinds, 200, taken=True)

    judge(cases(), (FastDPError,), 850)


def test_not_a_number_and_infinity_look_the_same(tmp_path: Path) -> None:
    def beside(_: str, argument: str) -> list[tuple[str, Any]]:
        taken = argument in ("values", "chunk", "truth", "answers", "streams", "reports")
        return [(f"{bad}", canary.not_finite(bad)) for bad in (np.nan, np.inf) if taken]

    said = [str(canary.witness(call)[0]) for _, call in argument_cases(tmp_path, beside)]
    assert said[::2] == said[1::2]
    assert len(said) > 60


def test_no_log_shows_the_canary(tmp_path: Path) -> None:
    """Log of every publisher on a stream of canaries, with a threshold below them: counts, theta, paths."""
    plain, said = [3.0] * 40, []
    for number, (name, make) in enumerate(PUBLISHERS.items()):
        with canary.logged() as lines:
            publisher = make()
            publisher.keep(tmp_path / str(number))
            for chunk in (plain, [CANARY] * 5, [float(WHOLE)] * 30, plain):
                publisher.publish(chunk[: publisher.length // 8] if isinstance(publisher, fastdp.PAK) else chunk)
            list(make().stream([CANARY, 1.0]))
        assert any("state kept in" in line for line in lines), name
        said += lines
    with canary.logged() as lines:
        fastdp.release([CANARY, 1.0, 2.0] * 400, 1.0, BOUND, seed=1)
    said += lines
    assert not canary.leaks(said)
    for message in ("threshold chosen: ", "blocks closed", "values seen"):
        assert any(message in line for line in said), message


def test_no_command_shows_the_canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The bars that a person at a terminal sees.
    shown = lambda **options: tqdm.tqdm(**{**options, "disable": False})  # noqa: E731
    monkeypatch.setattr("fastdp.cli.terminal.tqdm", shown)
    judge(canary_commands.all_cases(tmp_path), (SystemExit, FastDPError), 500)


def test_no_state_file_shows_the_canary(tmp_path: Path) -> None:
    """Files hold private values: what is no state file, wrong keys, and a replay of other values."""

    def cases() -> Iterator[Case]:
        for name, make in {**PUBLISHERS, **POINT_PUBLISHERS}.items():
            kind, kept = type(make()), tmp_path / name
            make().keep(kept, key=TEXT)
            raw = kept.read_bytes()
            for fault, content in {
                "text": TEXT.encode() * 99, "cut short": raw[:-9], "altered": raw[:-9] + TEXT.encode()[:9]
            }.items():  # fmt: skip
                path = tmp_path / f"{name} {fault}"
                path.write_bytes(content)
                yield f"{name}.load: {fault}", lambda kind=kind, path=path: kind.load(path, TEXT)
            for key in (TEXT + "y", TEXT.encode()):
                yield f"{name}.load: another key", lambda kind=kind, kept=kept, key=key: kind.load(kept, key)
        publisher = PUBLISHERS["Adaptive"]()
        publisher.keep(tmp_path / "kept")
        publisher.publish([1.0, CANARY, 3.0])
        del publisher
        for values in ([1.0, 2.0, CANARY], [CANARY]):
            load = lambda: fastdp.Adaptive.load(tmp_path / "kept", replay=True, moved=True)  # noqa: E731
            yield "replay: other values", lambda values=values, load=load: load().publish(values)

    judge(cases(), (FastDPError,), 5 * len(PUBLISHERS))


@pytest.mark.parametrize(
    "said",
    [
        *(f"values[3] = {CANARY}", f"{np.float32(CANARY)}", f"{CANARY!r}", f"{-CANARY}", f"{WHOLE:,} steps"),
        *(f"{CANARY:g}", f"{CANARY:.3e}", str(round(CANARY * 2**20)), f"of <U{LENGTH} entries"),
        *(f"{np.array([CANARY])}", f"{np.array([CANARY, 1.0])!r}", f"dtype S{LENGTH}", f"could not convert '{TEXT}'"),
        repr(TEXT.encode()[:4]),
    ],
)
def test_the_search_finds_every_spelling(said: str) -> None:
    assert canary.leaks([said])


def test_the_witness_sees_every_way_out(capsys: pytest.CaptureFixture[str]) -> None:
    def chained(hidden: bool = False) -> None:
        try:
            raise ValueError(f"cannot convert {CANARY}")
        except ValueError as error:
            raise RuntimeError("not shown") from (None if hidden else error)

    def noted() -> None:
        error = RuntimeError("not shown")
        error.add_note(TEXT)
        raise error

    ways: tuple[Callable[[], Any], ...] = (
        lambda: print(CANARY),
        lambda: sys.stderr.write(TEXT),
        lambda: warnings.warn(TEXT, stacklevel=1),
        lambda: logging.getLogger("any").debug("value %s", CANARY),
        lambda: b"\xff".join([b"", TEXT.encode()]).decode(),
        chained,
        noted,
    )
    for way in ways:
        assert canary.leaks(canary.witness(way)[1])
    assert capsys.readouterr() == ("", "")
    assert not canary.leaks(canary.witness(lambda: chained(hidden=True))[1]), "only what Python shows counts"
