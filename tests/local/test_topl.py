"""ToPL: two roles and one simulation with the same numbers; the published code's figures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fastdp
from fastdp.errors import AccuracyWarning, DataError, ParameterError, StateError
from fastdp.local import Client, Hybrid, LogSquareWave, SquareWave, encode
from fastdp.thresholds import Fixed, NoisyMax
from fastdp.thresholds import SquareWave as Rule
from tests.noise_values import bound_key


def stream(n: int = 5000) -> np.ndarray:
    return np.random.default_rng(1).gamma(2.0, 8.0, n)


def make(**options) -> fastdp.ToPL:
    return fastdp.ToPL(**{"epsilon": 1.0, "bound": 200, "holdout": 2000, "max_range": 4096, "seed": 4, **options})


def test_clients_and_server_apart_give_the_same_numbers() -> None:
    values = stream(2300)
    # A client's words come from the seed itself, those of a simulation from a key of its composition.
    simulation = make(seed=None, key=bound_key(4))
    whole = simulation.publish(values)
    server = fastdp.ToPLServer(1.0, 200, 2000, 4096)
    parts = []
    for i, value in enumerate(values):
        word = i if i < 2000 else i - 2000
        message = Client(1.0).answer(server.announcement.to_text(), value, seed=4, start=word)
        parts.append(server.receive(message))
        if i == 1000:
            assert server.receive(b"noise").size == 0
    assert server.threshold == simulation.threshold
    assert np.array_equal(np.concatenate(parts), whole)
    assert server.refused.messages == 1
    assert server.distribution is not None
    # What answers the first announcement comes too late, and is counted.
    late = encode(SquareWave(1.0, 0.0, 200.0), [1, 2])
    assert server.receive(late + encode(Hybrid(1.0, 0.0, server.threshold), [5, 6])).size == 2
    assert server.refused.messages == 2
    with pytest.raises(StateError, match="after the threshold was chosen"):
        server.collect([1])


def test_servers_of_one_simulation_have_estimates_of_their_own_thresholds() -> None:
    simulation, reports = make(holdout=20), LogSquareWave(1.0, 200.0 / 2**14, 200.0)
    for value in (0.1, 150.0):
        server = simulation.server
        server.collect(reports.perturb(np.full(20, value), seed=4))
        own = Hybrid(1.0, 0.0, server.threshold)
        assert server.publish([5, 7]).tolist() == own.estimate([5, 7]).tolist()


def test_separate_budgets_and_the_guarantee() -> None:
    both = make(threshold_epsilon=0.5, publish_epsilon=2.0)
    assert both.guarantee.epsilon == 2.0
    assert both.guarantee.model == "local"
    assert both.guarantee.arithmetic == "exact"
    assert both.guarantee.delta == 0.0
    assert both.guarantee.simulated
    assert any("users before the threshold" in line for line in both.guarantee.derivation)
    both.publish(stream(2000))
    assert both.server.announcement.mechanism == Hybrid(2.0, 0.0, both.threshold)
    assert make(threshold="linear").server.announcement.mechanism == SquareWave(1.0, 0.0, 200.0)
    assert make().server.announcement.mechanism == LogSquareWave(1.0, 200.0 / 2**14, 200.0)
    assert not make(seed=None).guarantee.simulated
    assert make(threshold=Fixed(9.0)).threshold == 9.0


def test_growth_behind_the_hold_out_is_reported_at_the_callers_line() -> None:
    values = np.random.default_rng(1).gamma(2.0, 5.0, 20_000)
    # A warning is an error: values that do not grow cause none, however theta is chosen.
    make(holdout=8000).release(values)
    grown = np.append(values[:16_000], 8.0 * values[16_000:])
    make(holdout=8000, threshold=9.0).release(grown)
    simulation = make(holdout=8000)
    simulation.publish(grown[:16_000])
    server = simulation.server
    reports = server.announcement.mechanism.perturb(grown[16_000:])
    message = encode(server.announcement.mechanism, reports)
    for call in (
        lambda: make(holdout=8000).release(grown),
        lambda: simulation.publish(grown[16_000:]),
        lambda: server.publish(np.append(reports, -1)),
        lambda: server.receive(message),
    ):
        with pytest.warns(AccuracyWarning, match="values grow behind .* threshold=, a public") as found:
            call()
        assert found[0].filename == __file__


def test_bad_input_changes_nothing() -> None:
    whole = make().publish(stream())
    simulation = make()
    spoiled = stream()[:2500]
    spoiled[2200] = np.inf
    with pytest.raises(DataError, match=r"chunk\[2200\]: not a finite"):
        simulation.publish(spoiled)
    assert simulation.n_seen == 0
    assert np.array_equal(simulation.publish(stream()), whole)
    with pytest.raises(StateError, match="has seen 5000 values"):
        simulation.release(stream())
    with pytest.raises(DataError, match="more than the hold-out of 2000"):
        make().release(stream(2000))
    with pytest.raises(StateError, match="before the threshold"):
        make().server.publish([1])
    for wrong, match in (
        ({"threshold": Rule(report_epsilon=1.0), "threshold_epsilon": 2.0}, "threshold_epsilon = 2"),
        ({"bound": 1e-140}, "bound = 1e-140"),
        ({"epsilon": 40.0}, "epsilon"),
        ({"publish_epsilon": 99.0}, "epsilon = 99"),
        ({"threshold": NoisyMax()}, r"threshold = .*SquareWave"),
        ({"threshold": Fixed(300.0)}, "theta"),
    ):
        with pytest.raises(ParameterError, match=match):
            make(**wrong)
    with pytest.raises(ParameterError, match="publish_epsilon = 50"):
        Rule(publish_epsilon=50.0)
    parts = {"perturber": fastdp.perturbers.Hierarchy(prune=0), "bound": 9.0, "holdout": 10, "max_range": 256}
    with pytest.raises(ParameterError, match="publish_epsilon = 40"):
        fastdp.StreamPublisher(threshold=Rule(report_epsilon=1.0), epsilon=40.0, **parts)


def test_it_ends_with_the_words_of_its_key() -> None:
    publisher = fastdp.ToPL(1.0, bound=10.0, holdout=20, seed=1)
    publisher.publish([1.0] * 30)
    publisher._state = replace(publisher._state, n_published=2**33 - 2)
    with pytest.raises(StateError, match=r"^chunk has 3 values after 8589934590: .*new ToPL"):
        publisher.publish([1.0] * 3)
    assert publisher.n_published == 2**33 - 2
    assert publisher.publish([1.0] * 2).size == 2


def test_an_interrupted_choice_consumes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    values, whole, simulation = stream(), make().publish(stream()), make()
    with monkeypatch.context() as patch:
        patch.setattr(Rule, "choose_from", interrupt)
        with pytest.raises(KeyboardInterrupt):
            simulation.publish(values[:2100])
    assert (simulation.n_seen, simulation.n_published) == (0, 0)
    assert np.array_equal(simulation.publish(values), whole)
    server = simulation.server
    shards = [fastdp.ToPLServer(1.0, 200, 2000, 4096) for _ in range(2)]
    full = shards[1].shard()
    full.add(SquareWave(1.0, 0.0, 200.0).perturb(values[:1999], seed=4))
    with monkeypatch.context() as patch:
        patch.setattr(Rule, "choose_from", interrupt)
        with pytest.raises(KeyboardInterrupt):
            shards[0].merge(full, full)
    assert shards[0].n_collected == 0
    assert server.threshold is not None


def interrupt(*_: object) -> float:
    raise KeyboardInterrupt


def test_refused_reports_keep_the_places_of_the_others() -> None:
    server = fastdp.ToPLServer(1.0, 200, threshold=Fixed(40.0))
    good = Hybrid(1.0, 0.0, 40.0)
    estimates = server.publish([5, -1, 7, good.n_outputs, 9])
    assert np.isnan(estimates).tolist() == [False, True, False, True, False]
    assert estimates[[0, 2, 4]].tolist() == good.estimate([5, 7, 9]).tolist()
    assert server.refused.reports == 2
    assert server.publish(5).tolist() == [good.estimate(5)]
    assert server.receive(encode(good, [5, 7]) + encode(good, 9), most_reports=1).tolist() == [good.estimate(9)]
    assert server.refused.messages == 1
    assert np.isnan(server.publish([5.0, 6.5])).tolist() == [False, True]
    assert server.refused.reports == 3
