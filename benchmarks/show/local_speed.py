"""Speed of the local model: the EM, reports a second on the users' side, messages a second on the server's."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

import fastdp
from benchmarks import records, sizes
from benchmarks.bench_local import REPORTS, make_values
from benchmarks.peers import numpy_local, numpy_square_wave
from benchmarks.reports import client, output_counts
from benchmarks.show.report import table
from benchmarks.show.speed import milliseconds
from benchmarks.streams import Floats
from benchmarks.timing import Timing, side_by_side
from fastdp import local
from fastdp.local.distribution import MAX_ITERATIONS, TOLERANCE, Distribution, estimate
from fastdp.local.transition import cell_edges, transition
from fastdp.randomness.key import Key
from fastdp.randomness.words import Purpose, StreamId, WordStream
from fastdp.thresholds import Fixed
from fastdp_kernels import square_wave_em

BINS = 1024
#: Seconds by threshold epsilon, as handed down with the project: the published code, and careful NumPy.
QUOTED = {0.2: (12.0, 1.5), 1.0: (4.1, 0.6), 2.0: (7.5, 0.7)}
#: The same for 2^20 hybrid reports.
QUOTED_HYBRID = (0.5, 0.1)
PLAIN = "EM, plain"
VARIANTS: dict[str, dict[str, Any]] = {
    PLAIN: {"accelerate": False},
    "EM, accelerated": {},
    "EMS": {"method": "ems"},
}
BATCHES = (1, 100, 10_000)
STEPS = 200
THETA = 50.0


def estimates(runs: int, *, peers: bool) -> None:
    """From counts of 65,536 reports to the distribution; the same stopping rule everywhere."""
    rows: list[list[str]] = []
    for epsilon in QUOTED:
        rows += _estimates_at(epsilon, runs, peers=peers)
    quoted = [", ".join(f"{pair[k]:g} s" for pair in QUOTED.values()) for k in (0, 1)]
    table(
        f"Square-wave EM, d = {BINS:,}, 65,536 reports of POS (or a stream like it). Quoted: published code "
        f"{quoted[0]}; careful NumPy {quoted[1]}",
        ["eps", "what", "steps", "ms (median)", "ms (min)", "us a step", "log-likelihood over plain EM",
         "times as fast as published", "times as fast as NumPy, quoted", "off dense EM, equal steps"],
        rows,
    )  # fmt: skip


def estimate_tasks(epsilon: float) -> dict[str, Callable[[], Distribution]]:
    return {
        name: partial(estimate, client(epsilon).law, epsilon, output_counts(epsilon), **options)
        for name, options in VARIANTS.items()
    }


def _estimates_at(epsilon: float, runs: int, *, peers: bool) -> list[list[str]]:
    theirs, careful = QUOTED[epsilon]
    tasks, group = estimate_tasks(epsilon), f"square wave EM, eps {epsilon:g}"
    found = {name: task() for name, task in tasks.items()}
    timings = side_by_side(tasks, runs)
    records.keep_all(group, timings, {name: found[name].iterations for name in tasks})
    rows = []
    for name, timing in timings.items():
        steps = found[name].iterations
        gain = found[name].log_likelihood - found[PLAIN].log_likelihood
        faster = [f"{quoted / timing.median:,.0f}" if name != "EMS" else "-" for quoted in (theirs, careful)]
        off = dense_difference(epsilon, steps) if name == PLAIN and peers else "-"
        rows.append([f"{epsilon:g}", name, f"{steps:,}", *milliseconds(timing),
                     f"{timing.median / steps * 1e6:.1f}", f"{gain:+.3f}", *faster, off])  # fmt: skip
    if peers:
        seconds, steps = dense_seconds(epsilon)
        records.keep(group, "careful NumPy", [seconds], items=steps)
        rows.append([f"{epsilon:g}", "careful NumPy, one run", f"{steps:,}", f"{seconds * 1e3:.0f}", "-",
                     f"{seconds / steps * 1e6:.1f}", "-", f"{theirs / seconds:,.0f}", f"{careful / seconds:.1f}",
                     "-"])  # fmt: skip
    return rows


def _dense(epsilon: float) -> tuple[Floats, Floats]:
    law = client(epsilon).law
    counts = np.add.reduceat(output_counts(epsilon), cell_edges(law, BINS)[:-1])
    return numpy_square_wave.dense_matrix(law, BINS), counts.astype(np.float64)


def dense_seconds(epsilon: float) -> tuple[float, int]:
    matrix, counts = _dense(epsilon)
    begin = perf_counter()
    _, steps = numpy_square_wave.estimate(matrix, counts, TOLERANCE * math.exp(epsilon), MAX_ITERATIONS)
    return perf_counter() - begin, steps


def dense_difference(epsilon: float, steps: int) -> str:
    """Largest difference of a frequency after as many steps of the kernel and of dense matrix products."""
    matrix, counts = _dense(epsilon)
    dense, _ = numpy_square_wave.estimate(matrix, counts, -math.inf, steps)
    own = np.full(BINS, 1.0 / BINS)
    reports = transition(client(epsilon).law, BINS, counts.astype(np.int64))
    square_wave_em.iterate_plain(reports, False, -math.inf, steps, own)
    return f"{np.abs(own - dense).max():.1e}"


def step_timings(runs: int, sizes_of: Sequence[int]) -> dict[int, Timing]:
    """``STEPS`` plain steps by the number of bins; their time must be linear in it."""
    tasks: dict[str, Callable[[], Any]] = {}
    for bins in sizes_of:
        law = client(1.0).law
        reports = transition(law, bins, np.add.reduceat(output_counts(1.0), cell_edges(law, bins)[:-1]))
        theta = np.empty(bins)

        def em(reports: Any = reports, theta: Floats = theta) -> None:
            theta[:] = 1.0 / theta.size
            square_wave_em.iterate_plain(reports, False, -math.inf, STEPS, theta)

        tasks[str(bins)] = em
    return {int(bins): timing for bins, timing in side_by_side(tasks, runs).items()}


def growth(runs: int) -> None:
    timings = step_timings(runs, (256, 1024, 4096, 16_384))
    for bins, timing in timings.items():
        records.keep("square wave EM, plain steps", f"{bins:,} bins", timing.seconds, items=STEPS)
    table(
        f"A plain EM step by the number of bins, eps = 1, {STEPS} steps a run",
        ["bins", "us a step (median)", "ns a step and bin"],
        ([f"{bins:,}", f"{timing.median / STEPS * 1e6:.2f}", f"{timing.median / STEPS / bins * 1e9:.2f}"]
         for bins, timing in timings.items()),
    )  # fmt: skip


def report_tasks() -> dict[str, Callable[[], Any]]:
    """2^20 values in, reports out, random words included; and what the server makes of them."""
    values, words, key = make_values(), np.empty(REPORTS, np.uint64), Key.random()
    generator, copied = np.random.default_rng(2), np.empty(REPORTS)
    tasks: dict[str, Callable[[], Any]] = {}
    for mechanism in (local.Hybrid, local.Piecewise, local.StochasticRounding, local.SquareWave):
        user = mechanism(1.0, -1.0, 1.0)
        tasks[f"{mechanism.__name__}: perturb"] = lambda user=user: user.perturb(values)
    hybrid = local.Hybrid(1.0, -1.0, 1.0)
    sent = hybrid.perturb(values)
    collector = local.HistogramCollector(client(1.0))
    square = client(1.0).perturb(values * 50.0)
    tasks["Hybrid: estimate"] = lambda: hybrid.estimate(sent)
    tasks["SquareWave: count reports"] = lambda: collector.add(square)
    tasks["careful NumPy hybrid, float noise (unsafe)"] = lambda: numpy_local.hybrid(values, 1.0, generator)
    tasks["AES-256 key stream alone (words)"] = lambda: WordStream(key, StreamId(Purpose.LOCAL)).fill(words)
    tasks["np.copyto of the values"] = lambda: np.copyto(copied, values)
    return tasks


def reports(runs: int) -> None:
    timings = side_by_side(report_tasks(), runs)
    records.keep_all("reports", timings, dict.fromkeys(timings, REPORTS))
    theirs, careful = QUOTED_HYBRID
    table(
        f"2^20 values, eps = 1. Quoted for the hybrid mechanism: published code {theirs:g} s, careful NumPy "
        f"{careful:g} s; fastdp is {theirs / timings['Hybrid: perturb'].median:,.0f} and "
        f"{careful / timings['Hybrid: perturb'].median:,.0f} times as fast",
        ["task", "ms (median)", "ms (min)", "million/s"],
        ([name, *milliseconds(timing), f"{REPORTS / timing.median / 1e6:.0f}"] for name, timing in timings.items()),
    )


def one_report() -> None:
    """A device's work: one value, one message, words from the operating system."""
    announced = local.Announcement(local.Hybrid(1.0, 0.0, THETA))
    text = announced.to_text()
    square = local.SquareWave(1.0, 0.0, float(sizes.BOUND))
    rows = []
    for name, task in (
        ("SquareWave.perturb(20.0)", lambda: square.perturb(20.0)),
        ("Hybrid.perturb(20.0)", lambda: announced.mechanism.perturb(20.0)),
        ("Client(1.0).answer(announcement, 20.0)", lambda: local.Client(1.0).answer(announced, 20.0)),
        ("the same, announcement as text", lambda: local.Client(1.0).answer(text, 20.0)),
    ):
        seconds = []
        for _ in range(5_000):
            begin = perf_counter()
            task()
            seconds.append(perf_counter() - begin)
        microseconds = np.quantile(seconds, (0.5, 0.99)) * 1e6
        rows.append([name, *(f"{value:.1f}" for value in microseconds)])
    table("One report on a device, 5,000 calls", ["call", "us (median)", "us (99 %)"], rows)


def server(runs: int) -> None:
    """Messages of several sizes, received one call each, at both stages."""
    rng = np.random.default_rng(3)
    rows = []
    for batch in BATCHES:
        count = max(batch, 2_000)
        values = rng.uniform(0.0, THETA, count)
        first = fastdp.ToPLServer(1.0, float(sizes.BOUND), holdout=2**50)
        later = fastdp.ToPLServer(1.0, float(sizes.BOUND), threshold=Fixed(THETA))
        messages = {}
        for name, at in (("square waves, threshold sought", first), ("hybrid, estimates published", later)):
            asked = at.announcement.mechanism
            sent = asked.perturb(values)
            parts = [local.encode(asked, sent[i : i + batch]) for i in range(0, count, batch)]
            messages[name] = (at, parts)

        def receive(at: fastdp.ToPLServer, parts: list[bytes]) -> None:
            for part in parts:
                at.receive(part)

        tasks = {name: lambda at=at, parts=parts: receive(at, parts) for name, (at, parts) in messages.items()}
        for name, timing in side_by_side(tasks, runs).items():
            parts = messages[name][1]
            rows.append([name, f"{batch:,}", f"{len(parts[0]):,}", f"{timing.median / len(parts) * 1e6:.0f}",
                         f"{count / timing.median:,.0f}"])  # fmt: skip
    table(
        "ToPLServer.receive, one message a call",
        ["stage", "reports a message", "bytes a message", "us a message", "reports/s"],
        rows,
    )
