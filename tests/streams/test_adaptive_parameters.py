"""Adaptive and Blocks: what is refused, and the corners of what is accepted."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import fastdp
from fastdp.errors import ParameterError
from fastdp.noise.key import Binding, Key
from fastdp.perturbers import Blocks
from fastdp.smoothers import Recent
from fastdp.streams.methods import Adaptive
from fastdp.thresholds import Fixed, NoisyMax
from fastdp.thresholds.renewals import RenewFromHoldout, RenewFromPublished
from fastdp_kernels.streams import block_lengths as b
from fastdp_kernels.streams import seasons
from tests.grid import exhaustive
from tests.state.adaptive_publishers import CLOSINGS

RENEWALS = (RenewFromHoldout(), RenewFromPublished(0.2))


def published_and_seen_again(publisher: Adaptive, values: np.ndarray) -> np.ndarray:
    """All of it, and what must hold whatever the parameters."""
    release = publisher.release(values)
    assert release.values.size == release.revised.size == values.size - publisher.holdout
    assert np.isfinite(release.values).all()
    assert np.isfinite(release.revised).all()
    assert np.isfinite(release.sum(0, len(release), revised=True)).all()
    assert np.isfinite(publisher._progress.smoother.view(np.float64)).all()
    return release.values


@pytest.mark.parametrize(
    ("holdout", "warm_up"), [(1, 0), (2, 0), (15, 0), (16, 2), (31, 2), (32, 4), *exhaustive((65_536, 8192))]
)
def test_a_share_of_the_hold_out_is_a_warm_up(holdout: int, warm_up: int) -> None:
    publisher = Adaptive(1.0, 10.0, holdout, seed=1, threshold=NoisyMax())
    assert publisher.holdout == holdout
    assert publisher.composition.warm_up == warm_up
    assert publisher.composition.task.holdout == holdout - warm_up
    assert warm_up & (warm_up - 1) == 0
    values = np.resize([0.5, 3.0], holdout + 100)
    assert published_and_seen_again(publisher, values).size == 100
    online = Adaptive(1.0, 10.0, holdout, seed=1, threshold=NoisyMax())
    assert sum(online.publish(values[i : i + 1]).size for i in range(min(holdout, 40))) == 0


def test_the_end_of_the_hold_out_is_released() -> None:
    """Its noisy sums enter the first published value."""
    values = np.repeat([2.0, 8.0, 0.0], [700, 64, 1])  # 64 is the greatest power of two up to 764 / 8
    first = Adaptive(1e4, 10.0, 764, threshold=Fixed(10.0), seed=1).publish(values)
    assert first == pytest.approx([8.0], abs=0.01)


def test_the_kernels_public_numbers() -> None:
    """Variance of a sum's noise, in squared thresholds; the first block is a 64th of the longest range at most."""
    for epsilon, max_range in itertools.product((1e-6, 0.01, 1.0, 100.0), (1, 2, 63, 64, 127, 128, 1000, 2**20)):
        shape = Blocks().shape(epsilon, max_range, 0)
        assert shape["noise"][0] == pytest.approx(2.0 / epsilon**2, rel=1e-12)
        longest = 2.0 ** shape["first"][0]
        assert longest <= max(1.0, max_range / 64.0)
        if epsilon < 1e-3:
            assert 2.0 * longest > max_range / 64.0, "as long as it may be where noise is all that counts"
        assert 2.0 ** shape["most"][0] <= max(1.0, max_range / 4.0) < 2.0 ** (shape["most"][0] + 1) + 1.0
    # K = 3 (max(1, r / 3) / length - 1 / 3): the first blocks hold one value, and no range holds less.
    for max_range, expected in ((1, 2.0), (2, 2.0), (3, 2.0), (4, 3.0), (5, 4.0), (6, 5.0)):
        plan = Blocks().plan(1.0, max_range)
        assert plan.first == 0
        assert Blocks().noise_constant(plan, max_range) == pytest.approx(expected, rel=1e-12)


RENEWED = {"threshold": NoisyMax(), "perturber": Blocks()}
REFUSED: list[tuple[dict[str, Any], str]] = [
    *(({"epsilon": epsilon}, "epsilon.*expected") for epsilon in (1e-200, 5e-324, 1e200, 1.7e308, 2.0**41)),
    *(({"bound": bound}, "bound.*expected") for bound in (None, 1e-300, 1e300)),
    ({"holdout": 0}, "holdout.*expected"),
    ({"resolution": 101.0}, "resolution.*expected"),
    *(({**RENEWED, "renewal": each}, r"renewal = .*expected None.*one threshold") for each in RENEWALS),
    ({**RENEWED, "smoother": Recent()}, r"smoother = .*expected None.*predict it themselves"),
    ({"epsilon": 1e6, "delta": 1e-9}, r"^epsilon = 1000000.0, delta = 1e-09: .* expected a smaller epsilon$"),
    (
        {"epsilon": 1e3, "sensitivity": 2.0**-10, "bound": None, "delta": 1e-9, "resolution": 2.0**-60},
        r"^epsilon = .* expected a larger epsilon, or a coarser resolution= than 8.67",
    ),
    ({"perturber": Blocks(focus=200)}, "^focus = 200: expected at most max_range = 100"),
]


@pytest.mark.parametrize(("options", "told"), REFUSED)
def test_arguments_that_do_not_fit_each_other_are_refused(options: dict[str, Any], told: str) -> None:
    kind = fastdp.StreamPublisher if "threshold" in options else Adaptive
    with pytest.raises(ParameterError, match=told):
        kind(**{"epsilon": 1.0, "bound": 100.0, "max_range": 100, **options})


@pytest.mark.parametrize("focus", [(5, 2), (5, 2, 1)])
def test_a_focus_is_one_length_or_two_in_order(focus: Any) -> None:
    with pytest.raises(ParameterError, match=r"the shortest length first|focus has 3 entries"):
        Blocks(focus=focus)


@pytest.mark.filterwarnings("ignore:threshold:fastdp.errors.AccuracyWarning")
def test_any_range_budget_and_bound() -> None:
    for max_range, closing in itertools.product((1, 2, 3, 4, 5, 127, 128, 2**40), CLOSINGS):
        publisher = Adaptive(1.0, 10.0, 64, max_range, perturber=Blocks(closing), seed=1, threshold=NoisyMax())
        published_and_seen_again(publisher, np.linspace(0.0, 9.0, 3000))
        longest = max(max_range.bit_length() - 3, 0)
        assert publisher._progress.smoother["exponent"][0] <= longest
    values = np.tile([1.0, 2.0, 3.0, 6.0], 1000)
    for closing, epsilon in itertools.product(CLOSINGS, (2.0**-20, 2.0**-6, 2.0**10, 2.0**30, 2.0**40)):
        options = {"perturber": Blocks(closing), "threshold": Fixed(8.0), "resolution": 2.0**-8}
        out = published_and_seen_again(Adaptive(epsilon, 10.0, 0, 2**12, **options, seed=1), values)
        if epsilon >= 2.0**30 and closing == "spike":
            assert np.array_equal(out, values), "blocks of one value, and no noise"
        if epsilon >= 2.0**30 and closing == "spread":
            assert out[1:].sum() == pytest.approx(values[:-1].sum(), abs=16.0)
    for bound in (1e-250, 1e-30, 1.0, 1e30, 1e250):
        values = np.linspace(0.0, 1.0, 3000) * bound
        published_and_seen_again(Adaptive(1.0, bound, 300, 2**10, seed=1, threshold=NoisyMax()), values)
        published_and_seen_again(Adaptive(1.0, bound, threshold=Fixed(bound), max_range=2**10, seed=1), values)


@pytest.mark.parametrize("scale", [2.0**-830, 2.0**-100, 2.0**100, 2.0**830])
def test_the_unit_of_values_does_not_matter(scale: float) -> None:
    """Of one key, whose noise is in grid steps: to the last bit."""
    key = Key(bytes(32), simulated=True, binding=Binding.COMPOSITION)
    unit = np.random.default_rng(1).random(3000)
    for options, scaled in (({"holdout": 300},) * 2, ({"threshold": Fixed(1.0)}, {"threshold": Fixed(scale)})):
        expected = Adaptive(1.0, 1.0, max_range=2**10, key=key.again(), **options).publish(unit)
        publisher = Adaptive(1.0, scale, max_range=2**10, key=key.again(), **scaled)
        assert np.array_equal(publisher.publish(unit * scale), expected * scale)


def test_states_of_another_size_or_season_are_refused() -> None:
    options = {"epsilon": 0.8, "max_range": 4096, "bound": 200.0, "threshold": 40.0, "seed": 4}
    daily, plain = (Adaptive(**options, perturber=Blocks(season=season)) for season in (96, None))
    for each in (daily, plain):
        each.publish(np.arange(3000.0) % 11)
    memories = daily._progress.smoother, plain._progress.smoother
    assert [memory.dtype for memory in memories] == [seasons.SEASON, b.MEMORY]
    other = memories[0].copy()
    other["period"] = 97.0
    assert daily._pipeline.fits(daily._progress)
    assert not daily._pipeline.fits(daily._progress._replace(smoother=other))
    for one, memory in ((daily, memories[1]), (plain, memories[0])):
        with pytest.raises(ValueError, match="out of range"):
            one._pipeline.remembered(memory.view(np.float64))
