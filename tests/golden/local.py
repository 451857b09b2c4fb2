"""Golden cases of the local model: reports, estimates, collectors, and ToPL's two roles."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from tests.golden.parts import CHUNKINGS, SECRETS, USUAL, Golden, public, published, released, replayed, values

STREAM = values(260)
_RULE = public("thresholds.SquareWave")
#: "logarithmic" as it was when the table was written.
TWO = {"linear": {"threshold": _RULE(bins=64)}, "logarithmic": {"threshold": _RULE(scale="logarithmic")}}
NAMES = ("Piecewise", "StochasticRounding", "Hybrid", "SquareWave", "LogSquareWave")


def _mechanism(name: str, epsilon: float = 1.0) -> Any:
    return public(f"local.{name}")(epsilon, 0.5, 64.0)


def _reports(folder: Path, name: str, epsilon: float = 1.0, **secret: Any) -> Iterator[Any]:
    mechanism = _mechanism(name, epsilon)
    reports = mechanism.perturb(STREAM, **{"start": 0, **secret})
    yield reports
    yield mechanism.perturb(13.25, **{"start": 7, **secret})
    if "SquareWave" not in name:
        yield mechanism.estimate(reports)


def _estimate(folder: Path, name: str, **options: Any) -> Iterator[Any]:
    mechanism = _mechanism(name)
    collector = public("local.HistogramCollector")(mechanism, 64)
    collector.add(mechanism.perturb(STREAM, **USUAL))
    found = collector.estimate(**options)
    yield from (collector.totals, found.frequencies, found.mean(), found.quantile(0.9), found.iterations)


def _sums(folder: Path) -> Iterator[Any]:
    kind, mechanism = public("local.SumCollector"), _mechanism("Hybrid")
    first, second = kind(mechanism, 3), kind(mechanism, 3)
    reports = mechanism.perturb(STREAM, **USUAL)
    first.add(reports[:100], 1)
    second.receive(public("local.encode")(mechanism, reports[100:]), 2)
    merged = first.merge(second)
    yield from (merged.totals, merged.sum(), merged.sum(1, 2), merged.mean(2), merged.std_error())


def _answers(folder: Path) -> Iterator[Any]:
    client, announced = public("local.Client"), public("local.Announcement")(_mechanism("Hybrid"))
    for k, value in enumerate((0.0, 12.5, 64.0, 99.0)):
        yield client(1.0).answer(announced.to_text(), value, seed="users", stream=2, start=k)
    yield announced.to_text().encode()


def _simulation(**options: Any) -> Any:
    return public("ToPL")(**{"epsilon": 1.0, "bound": 64, "holdout": 100, "max_range": 256, **options})


def _server(folder: Path, most: int, **options: Any) -> Iterator[Any]:
    """Users in batches, half of them through another machine while the threshold is sought."""
    server = public("ToPLServer")(epsilon=1.0, bound=64, holdout=100, max_range=256, publish_epsilon=2.0, **options)
    encode = public("local.encode")
    for begin in range(0, STREAM.size, most):
        mechanism, part = server.announcement.mechanism, STREAM[begin : begin + most]
        reports = mechanism.perturb(part, **{"start": begin, **USUAL})
        if server.threshold is None and begin // most % 2:
            shard = server.shard()
            shard.add(reports)
            server.merge(shard)
        else:
            yield server.receive(encode(mechanism, reports))
    yield from (server.threshold, server.value_variance, server.n_published)
    if server.distribution is not None:
        yield server.distribution.frequencies


def _online() -> Iterator[tuple[str, Golden]]:
    for scale, secret in product(TWO, SECRETS):
        run = lambda folder, o={**TWO[scale], **SECRETS[secret]}: published(_simulation(**o), STREAM)  # noqa: E731
        yield f"topl {scale}, {secret}", Golden(run, portable=False)
    for scale, chunking in product(TWO, CHUNKINGS):
        run = lambda folder, o=TWO[scale], c=chunking: published(_simulation(**o, **USUAL), STREAM, c)  # noqa: E731
        yield f"topl {scale}, {chunking}", Golden(run, portable=False)
    for scale in TWO:
        run = lambda folder, o=TWO[scale]: replayed(_simulation(**o, **USUAL), STREAM, folder)  # noqa: E731
        yield f"replay topl {scale}", Golden(run, portable=False)
        yield f"topl server {scale}", Golden(partial(_server, most=30, **TWO[scale]), portable=False)
    fixed = public("thresholds.Fixed")(20.0)
    for chunking in CHUNKINGS:
        run = lambda folder, c=chunking: published(_simulation(threshold=fixed, **USUAL), STREAM, c)  # noqa: E731
        yield f"topl fixed, {chunking}", Golden(run)
    yield (
        "topl fixed, released",
        Golden(lambda folder: released(_simulation(threshold=fixed, publish_epsilon=2.0, **USUAL).release(STREAM))),
    )
    yield "topl server fixed", Golden(partial(_server, most=41, threshold=fixed))


def _offline() -> Iterator[tuple[str, Golden]]:
    for name, secret in product(NAMES, SECRETS):
        yield f"reports {name}, {secret}", Golden(partial(_reports, name=name, **SECRETS[secret]))
    for name in NAMES:
        yield f"reports {name}, a later place", Golden(partial(_reports, name=name, stream=3, start=1000, **USUAL))
        yield f"reports {name}, epsilon 4", Golden(partial(_reports, name=name, epsilon=4.0, **USUAL))
    for name, method in product(("SquareWave", "LogSquareWave"), ("em", "ems")):
        yield f"estimate {name}, {method}", Golden(partial(_estimate, name=name, method=method), portable=False)
    plain = partial(_estimate, name="SquareWave", accelerate=False)
    yield "estimate SquareWave, not accelerated", Golden(plain, portable=False)
    yield "sums of reports", Golden(_sums)
    yield "answers of clients", Golden(_answers)


CASES = dict([*_online(), *_offline()])
