"""Couplings: public outputs are equal after a shift of noise that costs at most epsilon; negative controls fail."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import fastdp
from benchmarks.audit.couplings import CONTROLS, SHIPPED, planted, turning
from fastdp.errors import ParameterError
from fastdp.noise import chain_keys, sampler
from fastdp.noise.bound_noise import PrefixNoise
from fastdp.noise.gaussian import GaussianDistribution, gaussian_distribution
from fastdp.noise.key import Key
from fastdp.noise.sampler import Distribution
from fastdp.noise.words import Purpose, StreamId
from fastdp_lab.audit import lines
from fastdp_lab.audit.couplings.check import KEY, SPREADS, Instance, Outputs, Shifts, Table, findings
from fastdp_lab.audit.couplings.points import noted_steps
from fastdp_lab.audit.couplings.tables import (
    KEY_RULES,
    KINDS,
    NOISES,
    TABLES,
    UNITS,
    Row,
    at,
    batch_release,
    choice_of,
    online_release,
    tail,
)

#: In the default run; the others go the same ways.
SAMPLE = {"totals-given", "counts-public", "means-private", "windows-totals-given", "windows-counts-private"}
#: The largest ones; the others take a second or less.
LARGE = {
    *(set(TABLES) - SAMPLE),
    "tops",
    "nodes",
    "release-many",
    "repeat",
    "privtree",
    "flat-batches",
    "adaptive-batches",
    "renewed",
}
COUNT = StreamId(Purpose.COUNTER)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.exhaustive] if name in LARGE else []) for name in SHIPPED]
)
def test_shipped_publishers_are_coupled(name: str) -> None:
    found = findings(SHIPPED[name], 8, 7)
    assert not any(one.failed for one in found), found
    assert max(one.ratio for one in found) > 0.0
    assert all(one.compared for one in found)


@pytest.mark.slow
@pytest.mark.parametrize("name", CONTROLS)
def test_negative_controls_are_caught(name: str) -> None:
    assert any(findings(CONTROLS[name], 1, seed)[0].failed for seed in range(40)), f"{name} was not caught"


def counted(claim: float, scale: int, shift: int, publish: Callable[[int, int], object]) -> Instance:
    """One count of 3 or 4 with a draw of this scale; the adjacent one's draw is shifted."""
    distribution = sampler.laplace_distribution(scale)

    def seen(key: Key, count: int) -> Outputs:
        yield "count", publish(count, int(sampler.draws(1, distribution, key, COUNT)[0]))

    return Instance(claim, seen, 4, 3, lambda _, found: found.add(KEY, COUNT, 0, shift))


def test_a_check_sees_outputs_costs_and_scales() -> None:
    right = counted(1.0, 1, 1, lambda count, noise: count + noise).check(1)
    assert (right.unequal, right.ratio, right.failed) == ((), 1.0, False)
    unshifted = counted(1.0, 1, 0, lambda count, noise: count + noise).check(1)
    assert unshifted.unequal == ("count",)
    assert unshifted.failed
    cheap = counted(0.9, 1, 1, lambda count, noise: count + noise).check(1)
    assert cheap.unequal == ()
    assert cheap.failed
    shown = counted(1.0, 1, 1, lambda count, noise: (count + noise, count > 3)).check(1)
    assert shown.failed

    def scaled(key: Key, count: int) -> Outputs:
        sampler.draws(1, sampler.laplace_distribution(count), key, COUNT)
        return []

    secret = Instance(1.0, scaled, 4, 3).check(1)
    assert secret.unequal == ("scales",)


@pytest.mark.parametrize(
    ("distribution", "claim"), [(sampler.laplace_distribution(5), 1.2), (gaussian_distribution(5), 0.72)]
)
def test_noise_of_sums_is_shifted_to_the_same_noisy_sums(distribution: Distribution, claim: float) -> None:
    """By 1 and 5: six fifths of epsilon, or squares of 1 and 5 over twice that of sigma, 26 / 50."""

    def seen(key: Key, sums: list[int]) -> Outputs:
        yield "sums", sums + PrefixNoise(key).draw(np.array(sums), distribution, chain_keys.start_chain(key), 0)

    gaussian = isinstance(distribution, GaussianDistribution)
    exact = 26.0 / 50.0 if gaussian else 6.0 / 5.0
    for seed in range(8):
        found = Instance(claim, seen, [3, 9, 4], [4, 9, -1], concentrated=gaussian).check(seed)
        assert found.unequal == ()
        assert found.ratio == pytest.approx(exact / claim)


def test_draws_are_the_tables_wherever_they_are_asked_for() -> None:
    distribution = sampler.laplace_distribution(8)
    shifts = Shifts()
    shifts.add(KEY, COUNT, 5, 100)
    whole, moved, part, silent = (np.zeros(8, np.int64) for _ in range(4))
    sampler.fill(whole, distribution, Table(3).key, COUNT)
    sampler.fill(part[:3], distribution, Table(3).key, COUNT, 5)
    table = Table(3, shifts)
    sampler.fill(moved, distribution, table.key, COUNT)
    assert np.array_equal(moved - whole, [0, 0, 0, 0, 0, 100, 0, 0])
    assert np.array_equal(part[:3], whole[5:])
    assert table.losses()[0] == 12.5
    sampler.fill(silent, distribution, Table(SPREADS.index(0.0)).key, COUNT)
    assert not silent.any()


def test_labels_name_a_draw_and_digests_of_data_do_not() -> None:
    """Else a neighbour, whose data have another digest, would have noise that no shift can reach."""
    distribution, key = sampler.laplace_distribution(8), Table(3).key
    draws = [np.zeros(8, np.int64) for _ in range(3)]
    for out, own in zip(draws, (key.within("tree"), key.within("tree", b"digest"), key.within("lag")), strict=True):
        sampler.fill(out, distribution, own, COUNT)
    assert np.array_equal(draws[0], draws[1])
    assert not np.array_equal(draws[0], draws[2])


def test_instances_reach_what_they_are_for() -> None:
    """Blocks that change their length, and counts whose cells PrivTree chooses."""
    changed = later = 0
    for number in range(8):
        make, x, _, _ = turning(np.random.default_rng(number))
        revision = make(key=Table(number).key).release(x).revision
        assert revision is not None
        changed += np.unique(revision.exponents).size > 1
        instance = planted(np.random.default_rng(number))
        with noted_steps() as steps:
            list(instance.publish(Table(number).key, instance.x))
        later += max(steps) > 0
    assert changed >= 4
    assert later >= 4


def test_instances_of_tables_are_of_every_unit_noise_and_clip() -> None:
    """Of each kind, among as many instances as the command has of its rules of keys."""
    for kind in KINDS:
        generators = (np.random.default_rng([1, number]) for number in range(len(KEY_RULES) * lines.INSTANCES))
        found = {choice_of(generator, kind, "none") for generator in generators}
        units = len(UNITS) + (kind != "means")  # a calendar has no means
        assert len(found) == units * len(NOISES) * (1 if kind == "counts" else 2)


def test_the_tail_of_a_draw_is_that_of_its_law() -> None:
    q = np.exp(-1.0 / 3.0)
    distribution = np.array([(1.0 - q) / (1.0 + q) * q ** abs(k) for k in range(-200, 201)])
    for least in (1, 2, 17):
        assert tail(least, Fraction(3)) == pytest.approx(distribution[200 + least :].sum(), rel=1e-12)
    assert tail(0, Fraction(3)) == 1.0


@pytest.mark.parametrize("online", [False, True])
def test_tables_of_noise_give_the_numbers_of_a_table(online: bool) -> None:
    """Without noise the exact sums are shown; those of kept rows alone."""
    rows = [Row(10, "a", "p", 3.0), Row(20, "a", "p", 4.0), Row(70, "b", "q", 20.0)]
    options: dict[str, Any] = {"epsilon": 1.0, "unit": fastdp.Rows(2)}
    if online:
        time = fastdp.Time("at", "1h", start=at(0))
        options |= {"statistics": {"value": "sum"}, "time": time, "bounds": 10.0}
        tables = online_release(options, 0, KEY, [(60, rows[:2]), (180, rows[2:])])
    else:
        options |= {"value": "value", "time": fastdp.Time("at", "1h", start=at(0), stop=at(180)), "clip": 10.0}
        tables = batch_release("totals", options, KEY, rows)
    estimates = np.concatenate(
        [table.sum(np.arange(len(table)), np.arange(1, len(table) + 1)) if len(table) else [] for table in tables]
    )
    assert estimates.tolist() == [7.0, 10.0, 0.0]


def test_lines_are_repeated_by_their_seed() -> None:
    first, again, other = (lines.coupled("pak", SHIPPED["pak"], 5, seed) for seed in (1, 1, 2))
    assert first == again != other
    assert lines.INSTANCES >= 100
    with pytest.raises(ParameterError, match="only = 'nope': expected one of 'all', 'couplings', 'adaptive'"):
        list(lines.lines({"couplings": lines.shipped()["couplings"]}, "only", "nope"))
