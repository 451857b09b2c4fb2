"""Default hold-outs of streams whose length or rate is known, and the warning that says when publishing begins."""

from __future__ import annotations

import warnings
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import fastdp
from fastdp.errors import AccuracyWarning
from fastdp.perturbers import Flat
from fastdp.streams import methods
from fastdp.thresholds import ScaleFree

YEAR = 365 * 24 * 3600


def made(kind: Any = fastdp.Adaptive, epsilon: float = 1.0, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AccuracyWarning)
        return kind(epsilon=epsilon, bound=1000.0, seed=1, **options)


def resolved(publisher: Any) -> float:
    return ScaleFree().start(publisher.composition.task).resolved


def test_defaults_without_them_are_what_they_were() -> None:
    for kind in (fastdp.Adaptive, fastdp.ToPS):
        assert (made(kind).holdout, made(kind).max_range) == (65_536, 2**20)
    composed = fastdp.StreamPublisher(threshold=ScaleFree(), perturber=Flat(), epsilon=1.0, bound=9.0, seed=1)
    assert (composed.holdout, composed.max_range) == (65_536, 2**20)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("length", [1, 7, 1000, 20_000, 10**6, 10**9])
def test_a_known_length_takes_a_quarter_at_most_and_what_a_good_choice_needs(length: int, epsilon: float) -> None:
    publisher = made(expected_length=length, epsilon=epsilon)
    most = max(1, min(65_536, length // 4))
    assert publisher.max_range == min(2**20, length)
    assert 1 <= publisher.holdout <= most
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AccuracyWarning)
        if publisher.holdout < most:
            assert resolved(publisher) >= 2.0
            shorter = made(holdout=publisher.holdout - 1, max_range=publisher.max_range, epsilon=epsilon)
            assert resolved(shorter) < 2.0
        else:
            fewer = made(holdout=max(1, most - 1), max_range=publisher.max_range, epsilon=epsilon)
            assert most == 1 or resolved(fewer) < 2.0
    assert made(fastdp.ToPS, expected_length=length).holdout == most


def test_a_rate_is_planned_for_a_year() -> None:
    half_hours = made(every="30min")
    assert half_hours.max_range == 365 * 48
    assert 1.0 <= resolved(half_hours) < 2.0
    assert 48 * 7 <= half_hours.holdout < 48 * 30
    for same in ({"every": timedelta(minutes=30)}, {"every": 1800}, {"every": "0.5 h"}):
        assert made(**same).composition == half_hours.composition
    # As fast as values come there is nothing to shorten; a length in values counts before a rate.
    fast = made(every=0.001)
    assert resolved(fast) >= 2.0
    assert fast.composition == made(expected_length=YEAR * 1000).composition
    assert made(every="1h", expected_length=2000).max_range == 2000
    assert made(every="h").max_range == 365 * 24


def test_a_long_holdout_says_when_publishing_begins_and_what_would_be_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    class Noon(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime(2026, 3, 1, 12, 0, tzinfo=UTC)

    monkeypatch.setattr(methods, "datetime", Noon)
    with pytest.warns(AccuracyWarning) as seen:
        fastdp.Adaptive(1.0, 1000.0, 48 * 20, 1000, every="30min", seed=1)
    (said,) = [str(each.message) for each in seen]
    assert said.startswith(
        "holdout = 960 values at one value every 30 min last 20 d: publishing begins about 2026-03-21 12:00 UTC"
    )
    assert "threshold=50.0, that is Fixed(50.0)" in said
    with pytest.warns(AccuracyWarning, match="after the year 9999"):
        fastdp.Adaptive(1.0, 1000.0, 100_000, every=1e9, max_range=100, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fastdp.ToPS(1.0, 1000.0, 48, 48, every="30min", seed=1)
        fastdp.Adaptive(1.0, 1000.0, every="30min", threshold=50.0, seed=1)
        fastdp.Adaptive(1.0, 1000.0, seed=1)
