"""``fastdp demo``: what a release is and how good, on synthetic data, without network or files."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fastdp.cli.errors import plain_errors
from fastdp.cli.options import declared, with_options

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fastdp.releases.release import Release
    from fastdp.streams.methods import Adaptive, ToPS

HOLDOUT = 65_536
QUERIES = 200
MAX_LENGTH = 2**20
QUERY_SEED = 1
BINS = 120
WARM_RUNS = 9
#: When the synthetic day begins and ends.
HOURS = (10.0, 34.0)


@click.command()
@with_options(
    declared(
        """
-o/--output PICTURE:path as picture  The picture (.png, .svg, .pdf); a picture of that name is
    replaced.
--epsilon :float = 0.05  Privacy loss for one value.
--seed N:from0  For simulation only: reproducible noise.  [default: a fresh random key]
--no-picture  Print the table only.
""",
        picture={"default": Path("fastdp-demo.png"), "show_default": True},
    )
)
def demo(picture: Path, epsilon: float, seed: int | None, no_picture: bool) -> None:
    """Release a synthetic day of DNS queries and compare it with the truth.

    The data are generated, so the truth may be shown; "fastdp release" never shows it.
    """
    with plain_errors():
        run_demo(None if no_picture else picture, epsilon, seed)


def run_demo(picture: Path | None, epsilon: float, seed: int | None, n: int | None = None) -> None:
    """The demonstration.

    Parameters
    ----------
    picture : Path, optional
        Where the picture goes; none is drawn without it.
    epsilon : float
        Privacy loss for one value.
    seed : int, optional
        For reproducible noise.
    n : int, optional
        Length of the stream, the hold-out included; by default a whole day.
    """
    import numpy as np

    from fastdp.cli.day import DAY_LENGTH, DNS_BOUND, dns_like_day
    from fastdp.cli.release_run import as_table, rate, seconds
    from fastdp.streams.methods import Adaptive, ToPS

    n = DAY_LENGTH if n is None else n
    values = dns_like_day(n).astype(np.float64)
    holdout = min(HOLDOUT, n // 4)
    timed = [_release_and_time(system, values, epsilon, holdout, seed) for system in (Adaptive, ToPS)]
    (private, duration), (paper, _) = timed
    truth = values[private.offset :]
    click.echo("A synthetic day of DNS queries per interval, released under differential privacy.\n")
    click.echo(
        as_table(
            (
                ("values", f"{len(private):,} published, {holdout:,} held out before them"),
                ("threshold", f"{private.threshold:g} (public bound {DNS_BOUND:g})"),
                ("guarantee", str(private.guarantee)),
                ("speed", f"{rate(n, duration)} ({seconds(duration)}; median of {WARM_RUNS} warm runs)"),
            )
        )
    )
    click.echo(
        f"\nError (root mean square) of the sums over {QUERIES} random ranges, and of the {BINS} means drawn:\n"
    )
    click.echo(as_table(_errors(truth, private, paper)))
    if picture is not None:
        click.echo("\n" + _draw(truth, private, paper, picture, epsilon, n))


def _release_and_time(
    system: type[Adaptive | ToPS], values: NDArray[np.float64], epsilon: float, holdout: int, seed: int | None
) -> tuple[Release, float]:
    """Release, then again and again to time it: the first run may compile, the others tell the lasting speed."""
    from statistics import median

    from fastdp.cli.day import DNS_BOUND

    durations = []
    for _ in range(1 + WARM_RUNS):
        publisher = system(epsilon, DNS_BOUND, holdout, MAX_LENGTH, seed=seed)
        begin = time.perf_counter()
        released = publisher.release(values)
        durations.append(time.perf_counter() - begin)
    return released, median(durations[1:])


def _errors(truth: NDArray[np.float64], private: Release, paper: Release) -> list[tuple[str, str]]:
    """Root mean square errors, each beside that of zeros, whose error is the size of the answers."""
    import numpy as np

    before = np.concatenate(([0.0], np.cumsum(truth)))

    def errors(starts: NDArray[np.int64], stops: NDArray[np.int64]) -> list[float]:
        answers = (
            private.sum(starts, stops),
            private.sum(starts, stops, revised=True),
            paper.sum(starts, stops),
            np.zeros(starts.size),
        )
        return [float(np.mean((before[stops] - before[starts] - answer) ** 2)) ** 0.5 for answer in answers]

    generator = np.random.default_rng(QUERY_SEED)
    longest = min(truth.size, MAX_LENGTH)
    lengths = generator.integers(1, longest, QUERIES, endpoint=True)
    # Uniform over all ranges: lengths j and longest + 1 - j have so many places between them, whatever j is.
    starts = generator.integers(0, 2 * truth.size - longest + 1, QUERIES)
    own = truth.size - lengths + 1
    lengths = np.where(starts < own, lengths, longest + 1 - lengths)
    starts = np.where(starts < own, starts, starts - own)
    ranges = errors(starts, starts + lengths)
    edges = np.linspace(0, truth.size, BINS + 1).astype(np.int64)
    drawn = errors(edges[:-1], edges[1:])
    names = (
        ("as published", ""),
        ("revised", " (from all that was released)"),
        ("ToPS", " (the paper's method)"),
        ("zeros", " (publishing nothing but zeros)"),
    )
    return [
        (name, f"{one:14,.0f}   {one / ranges[-1]:8.3%} of the true sums  {two / drawn[-1]:8.3%} of the means{note}")
        for (name, note), one, two in zip(names, ranges, drawn, strict=True)
    ]


def _draw(truth: Any, private: Release, paper: Release, picture: Path, epsilon: float, n: int) -> str:
    """Draw the picture; what to say about it."""
    from fastdp.plots import truth_and_releases

    first, last = HOURS
    begin = first + (last - first) * private.offset / n
    try:
        truth_and_releases(
            truth,
            {
                "ToPS": paper.values,
                "Adaptive, as published": private.values,
                "Adaptive, revised": private.revised,
            },
            picture,
            span=(begin, last),
            title=f"A synthetic day of DNS queries and its private releases, epsilon = {epsilon:g}",
            bins=BINS,
            clock=True,
            x_label="time of day",
            y_label=f"queries per interval\n(means of {BINS} stretches)",
        )
    except ImportError:
        return "No picture: matplotlib is not installed (pip install 'fastdp-streams[plot]')."
    return f"Picture: {picture}"
