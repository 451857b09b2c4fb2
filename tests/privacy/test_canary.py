"""No message shows a private value: a canary goes into every public call and command, in every way that can fail.

Discovery is by ``__all__``: a public name has calls in ``canary_calls``, or a reason in ``public_names``.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
import tqdm

import fastdp
from fastdp.errors import FastDPError
from tests.privacy import canary, canary_arguments, canary_calls, public_names
from tests.privacy.canary import CANARY, LENGTH, TEXT, WHOLE

pytestmark = pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")


def test_every_public_name_has_calls_or_a_reason() -> None:
    called, names = {calls.name for calls in canary_calls.all_calls()}, set(public_names.all_names())
    missing = names - called - public_names.taking_no_data(names)
    assert not missing, f"neither a row in canary_calls.py nor a reason in public_names.py: {sorted(missing)}"
    gone = (called | public_names.split(public_names.WITHOUT_DATA)) - names
    assert not gone, f"rows for what is not public: {sorted(gone)}"


def judge(cases: Iterable[tuple[str, Callable[[], Any]]], kinds: tuple[type[BaseException], ...]) -> Counter[str]:
    """All cases fail, and nothing that comes out shows the canary; how many, by the name before the colon."""
    counted: Counter[str] = Counter()
    passed, odd, shown = [], [], []
    for name, call in cases:
        error, lines = canary.witness(call)
        counted[name.partition(":")[0]] += 1
        if error is None:
            passed.append(name)
        elif not isinstance(error, kinds) or (isinstance(error, SystemExit) and error.code != 1):
            odd.append(f"{name}: {error!r}")
        shown += [f"{name}: {line[-400:]}" for line in canary.leaks(lines)[:1]]
    assert not shown, f"{len(shown)} of {counted.total()} show the canary:\n" + "\n".join(shown[:20])
    assert not passed, f"{len(passed)} of {counted.total()} did not fail:\n" + "\n".join(passed[:20])
    assert not odd, f"{len(odd)} of {counted.total()} failed otherwise:\n" + "\n".join(odd[:20])
    return counted


def test_no_call_shows_the_canary() -> None:
    # Foreign errors of calls without a check of their own, such as a text in place of bytes, show nothing either.
    kinds = (FastDPError, TypeError, AttributeError, ValueError, OverflowError)
    cases = [case for calls in canary_calls.all_calls() for case in calls.cases()]
    counted = judge(cases, kinds)
    assert len(counted) >= 90
    print(f"\n{len(counted)} entry points, {counted.total():,} failing inputs, 0 leaks")


@pytest.mark.slow
def test_no_argument_shows_a_column(tmp_path: Path) -> None:
    """A column in place of each argument of each public call: an error of fastdp, or taken as data, and no entry."""
    matplotlib.use("Agg")
    counted: Counter[str] = Counter()
    raw, shown = [], []
    for name in canary_arguments.names():
        call = canary_arguments.Call(name, tmp_path)
        call.make()
        for argument, (kind, bad) in itertools.product(call.parameters, canary_arguments.columns().items()):
            error, lines = canary.witness(lambda call=call, name=argument.name, bad=bad: call.make(name, bad))
            said = f"{name}({argument.name}=): {kind}"
            counted[name] += 1
            # Of the loaders of files that are not there.
            if not isinstance(error, (FastDPError, FileNotFoundError, type(None))):
                raw.append(f"{said}: {error!r}"[:300])
            shown += [f"{said}: {line[-300:]}" for line in canary.leaks(lines)[:1]]
    assert not shown, f"{len(shown)} of {counted.total()} show an entry:\n" + "\n".join(shown[:20])
    assert not raw, f"{len(raw)} of {counted.total()} are foreign errors:\n" + "\n".join(raw[:20])
    assert len(counted) >= 215
    print(f"\n{len(counted)} public calls, {counted.total():,} columns for an argument, none shown or foreign")


def test_no_log_shows_the_canary(tmp_path: Path) -> None:
    """What every publisher logs of a stream of canaries, with a threshold below them: counts, theta, paths."""
    plain, said = [3.0] * 40, []
    for number, (name, make) in enumerate(canary_calls.PUBLISHERS.items()):
        with canary.logged() as lines:
            publisher = make()
            publisher.keep(tmp_path / str(number))
            for chunk in (plain, [CANARY] * 5, [float(WHOLE)] * 30, plain):
                if isinstance(publisher, fastdp.PAK):
                    chunk = chunk[: publisher.length // 8]
                publisher.publish(chunk)
            twin = make()
            list(twin.stream([CANARY, 1.0]))
        assert any("state kept in" in line for line in lines), name
        said += lines
    with canary.logged() as lines:
        fastdp.release([CANARY, 1.0, 2.0] * 100, 1.0, canary_calls.BOUND, seed=1)
    said += lines
    assert not canary.leaks(said)
    for message in ("threshold chosen: ", "from all 300 values", "blocks closed", "values seen"):
        assert any(message in line for line in said), message


def test_no_command_shows_the_canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.privacy import canary_commands

    # The bars that a person at a terminal sees.
    shown = lambda **options: tqdm.tqdm(**{**options, "disable": False})  # noqa: E731
    monkeypatch.setattr("fastdp.cli.terminal.tqdm", shown)
    counted = judge(canary_commands.all_cases(tmp_path), (SystemExit,))
    assert len(counted) >= 15
    print(f"\n{len(counted)} commands and methods, {counted.total():,} failing inputs, 0 leaks")


def test_not_a_number_and_infinity_look_the_same() -> None:
    compared = 0
    for calls in canary_calls.all_calls():
        found = calls.inputs()
        pair = [found.get(name) for name in ("NaN beside it", "infinity beside it")]
        if any(bad is None for bad in pair) or "NaN beside it" in calls.takes:
            continue
        errors = [canary.witness(lambda bad=bad, calls=calls: calls.call(bad))[0] for bad in pair]
        if calls.inputs is canary.columns:
            assert str(errors[0]) == str(errors[1]), calls.name
            compared += 1
    assert compared >= 30


def test_damaged_state_files(tmp_path: Path) -> None:
    """State files hold private values: what is no state file, wrong keys, and files of other values."""

    def cases() -> Iterator[tuple[str, Callable[[], Any]]]:
        for name, make in {**canary_calls.PUBLISHERS, **canary_calls.SPATIAL}.items():
            kind, kept = type(make()), tmp_path / name
            make().save(kept, key=TEXT)
            raw = kept.read_bytes()
            contents = {"text": TEXT.encode() * 99, "cut short": raw[:-9], "altered": raw[:-9] + TEXT.encode()[:9]}
            for fault, content in contents.items():
                path = tmp_path / f"{name} {fault}"
                path.write_bytes(content)
                yield f"{name}.load: {fault}", lambda kind=kind, path=path: kind.load(path, TEXT)
            yield f"{name}.load: another key", lambda kind=kind, kept=kept: kind.load(kept, TEXT + "y")
            yield f"{name}.load: bytes for a key", lambda kind=kind, kept=kept: kind.load(kept, TEXT.encode())

    counted = judge(cases(), (FastDPError,))
    assert counted.total() >= 5 * len(canary_calls.PUBLISHERS)
    print(f"\n{len(counted)} classes, {counted.total()} files that are refused, 0 leaks")


def test_an_altered_replay_shows_nothing(tmp_path: Path) -> None:
    publisher = canary_calls.PUBLISHERS["Adaptive"]()
    publisher.keep(tmp_path / "kept")
    publisher.publish([1.0, CANARY, 3.0])
    del publisher

    def replay(values: list[float]) -> Callable[[], Any]:
        return lambda: fastdp.Adaptive.load(tmp_path / "kept", replay=True, moved=True).publish(values)

    counted = judge(
        [("replay: other values", replay([1.0, 2.0, CANARY])), ("replay: fewer", replay([CANARY]))], (FastDPError,)
    )
    assert counted.total() == 2


@pytest.mark.parametrize(
    "said",
    [
        *(f"values[3] = {CANARY}", f"{np.float32(CANARY)}", f"{CANARY!r}", f"{-CANARY}", f"{WHOLE:,} steps"),
        *(
            f"{CANARY:g}",
            f"{CANARY:.3e}",
            str(round(CANARY * 2**20)),
            f"of <U{LENGTH} entries",
            repr(TEXT.encode()[:4]),
        ),
        *(f"{np.array([CANARY])}", f"{np.array([CANARY, 1.0])!r}", f"dtype S{LENGTH}", f"could not convert '{TEXT}'"),
    ],
)
def test_the_search_finds_every_spelling(said: str) -> None:
    assert canary.leaks([said])


def test_the_witness_sees_every_way_out(capsys: pytest.CaptureFixture[str]) -> None:
    import logging
    import sys
    import warnings

    def chained() -> None:
        try:
            raise ValueError(f"cannot convert {CANARY}")
        except ValueError as error:
            raise RuntimeError("not shown") from error

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

    def hidden() -> None:
        try:
            raise ValueError(f"cannot convert {CANARY}")
        except ValueError:
            raise RuntimeError("not shown") from None

    assert not canary.leaks(canary.witness(hidden)[1]), "only what Python shows counts"
