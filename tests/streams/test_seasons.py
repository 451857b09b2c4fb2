"""A public season: what it changes in published values, in releases, in states and in replays."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastdp
from fastdp.perturbers import Blocks
from fastdp.streams.methods import Adaptive
from fastdp.streams.stream_machine import Schedule
from fastdp_kernels.streams import block_lengths as b
from fastdp_kernels.streams import seasons

KEY = bytes(range(32))
DAY = 96
KINDS = [{"bound": 200.0, "threshold": 40.0}, {"sensitivity": 1}, {"bound": 200.0, "holdout": 600}]


def counts(n: int = 8000) -> np.ndarray:
    rate = 8.0 + 6.0 * np.sin(np.arange(n) * 2 * np.pi / DAY)
    return np.random.default_rng(1).poisson(rate).astype(np.float64)


def make(**options: Any) -> Adaptive:
    usual = {"epsilon": 0.8, "max_range": 4096, "seed": 4}
    blocks = Blocks(options.pop("closing", "spread"), season=options.pop("season", DAY))
    return Adaptive(**{**usual, "perturber": blocks, **options})


def knows(publisher: Adaptive) -> bool:
    """Whether it has found the season in what it released."""
    return bool(publisher._progress.smoother["gained"][0] > seasons.CERTAIN)


@pytest.mark.parametrize("kind", KINDS)
def test_published_values_follow_the_day(kind: dict[str, Any]) -> None:
    """From the same noise: only predictions differ, and they are better."""
    values, daily = counts(), make(**kind)
    c = daily.composition
    plain = replace(c, perturber=replace(c.perturber, season=None))
    other = fastdp.StreamPublisher._of(Schedule(plain), daily._key.again())
    one, two = daily.release(values), other.release(values)
    assert knows(daily)
    assert np.array_equal(one.revision.totals, two.revision.totals)
    assert np.array_equal(one.revision.exponents, two.revision.exponents)
    rate = 8.0 + 6.0 * np.sin(np.arange(values.size) * 2 * np.pi / DAY)[one.offset :]
    late = slice(20 * DAY, None)
    errors = [np.square((each.values - rate)[late]).mean() for each in (one, two)]
    assert errors[0] < 0.8 * errors[1]
    assert one.guarantee == two.guarantee


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("closing", ["spread", "spike", "none"])
def test_chunks_do_not_matter(kind: dict[str, Any], closing: str) -> None:
    values = counts(4000)
    whole = make(**kind, closing=closing).publish(values)
    publisher = make(**kind, closing=closing)
    assert np.array_equal(np.concatenate([publisher.publish([value]) for value in values]), whole)
    assert publisher._progress.smoother["gained"][0] > 0.0, "predictions are bent"
    other = make(**kind, closing=closing)
    cuts = np.random.default_rng(2).integers(0, values.size, 20)
    assert np.array_equal(np.concatenate([other.publish(part) for part in np.split(values, np.sort(cuts))]), whole)


def test_the_last_value_of_a_block_closes_its_account() -> None:
    """With closing="spike" sums of whole blocks are the released ones, bent or not."""
    publisher = make(**KINDS[0], closing="spike")
    release = publisher.release(counts())
    assert knows(publisher)
    edges = release.revision.edges
    sums = np.add.reduceat(release.values[: edges[-1]], edges[:-1])
    np.testing.assert_allclose(sums, release.revision.totals * release.threshold, rtol=0, atol=1e-9)


@pytest.mark.parametrize("place", [0, 300, 599, 600, 601, 2500, 7777])
def test_a_loaded_publisher_continues_exactly(tmp_path: Path, place: int) -> None:
    values, publisher = counts(), make(**KINDS[2])
    whole = make(**KINDS[2]).publish(values)
    first = publisher.publish(values[:place])
    publisher.save(tmp_path / "s", KEY)
    loaded = Adaptive.load(tmp_path / "s", KEY)
    assert loaded.composition == publisher.composition
    assert np.array_equal(np.concatenate([first, loaded.publish(values[place:])]), whole)


def test_states_of_another_size_or_season_are_refused() -> None:
    values, daily, plain = counts(), make(**KINDS[0]), make(**KINDS[0], season=None)
    for each in (daily, plain):
        each.publish(values[:3000])
    assert plain._progress.smoother.dtype == b.MEMORY
    assert daily._progress.smoother.dtype == seasons.SEASON
    other = daily._progress.smoother.copy()
    other["period"] = 97.0
    assert daily._pipeline.fits(daily._progress)
    assert not daily._pipeline.fits(daily._progress._replace(smoother=other))
    for one, memory in ((daily, plain._progress.smoother), (plain, daily._progress.smoother)):
        with pytest.raises(ValueError, match="out of range"):
            one._pipeline.remembered(memory.view(np.float64))


def test_a_theta_that_rises_and_a_season_go_together() -> None:
    """Noise of a higher theta counts as several of the first in the filter, and chunks still do not matter."""
    values = counts() * np.where(np.arange(8000) < 2000, 1.0, 8.0)
    options = {"bound": 1000.0, "holdout": 1000, "epsilon": 4.0}
    publisher = make(**options)
    whole = publisher.publish(values)
    assert publisher._progress.smoother["plain"]["unit"][0] > 2.0
    other = make(**options)
    assert np.array_equal(np.concatenate([other.publish(part) for part in np.split(values, 80)]), whole)
    late = np.square(whole[-2000:] - values[-2000:]).mean()
    assert late < 1.05 * np.square(make(**options, season=None).publish(values)[-2000:] - values[-2000:]).mean()
