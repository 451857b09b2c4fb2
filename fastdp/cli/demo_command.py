"""``fastdp demo``: a release and its errors, on synthetic data."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import click
import numpy as np

from fastdp import validation
from fastdp.cli.terminal import as_table, plain_errors
from fastdp.kinds import Floats, Indices, Integers
from fastdp.releases import pictures
from fastdp.releases.release import Release
from fastdp.state.atomic_files import check_target
from fastdp.streams.array_release import release
from fastdp.streams.methods import ToPS

HOLDOUT, MAX_LENGTH = 65_536, 2**20
DAY_LENGTH = HOLDOUT + MAX_LENGTH
QUERIES, QUERY_SEED, BINS = 200, 1, 120
#: Begin and end of the synthetic day.
HOURS = (10.0, 34.0)
#: Colours of the releases; the last is drawn above the others.
LINES = {"ToPS": "#8d99ae", "release": pictures.PRIVATE}
#: Rows of the table, with explanations.
ROWS = {
    "release": " (one answer for the whole day)",
    "ToPS": " (the paper's method)",
    "zeros": " (publishing nothing but zeros)",
}


@click.command()
@click.option(
    "-o", "--output", "picture", type=click.Path(path_type=Path), default="fastdp-demo.png", show_default=True,
    metavar="PICTURE", help="The picture (.png, .svg, .pdf); a picture of that name is replaced.",
)  # fmt: skip
@click.option("--epsilon", type=float, default=0.05, show_default=True, help="Privacy loss for one value.")
@click.option("--seed", type=click.IntRange(min=0), metavar="N", help="For simulation only: reproducible noise.")
@click.option("--no-picture", is_flag=True, help="Print the table only.")
def demo(picture: Path, epsilon: float, seed: int | None, no_picture: bool) -> None:
    """Release a synthetic day of DNS queries and compare it with the truth.

    The data are synthetic, so the truth may be shown; "fastdp release" never shows it.
    """
    with plain_errors({"epsilon": "--epsilon", "path": "--output"}):
        if not no_picture:
            # Without matplotlib the table is printed alone.
            with suppress(ImportError):
                pictures.check_picture(picture)
            check_target(picture, overwrite=True)
        values = dns_like_day().astype(np.float64)
        paper = ToPS(epsilon, DNS_BOUND, HOLDOUT, MAX_LENGTH, seed=seed).release(values)
        private = release(values, epsilon, DNS_BOUND, seed=seed)
        edges = np.linspace(HOLDOUT, values.size, BINS + 1).astype(np.int64)
        click.echo("A synthetic day of DNS queries per interval, released under differential privacy.\n")
        facts = {"values": f"{len(private):,}, all released; ToPS holds out the first {HOLDOUT:,}"}
        facts |= {"threshold": f"{private.threshold:g} (public bound {DNS_BOUND:g})"}
        facts |= {} if private.answer is None else dict(private.answer.facts)
        click.echo(as_table({**facts, "guarantee": str(private.guarantee)}.items()))
        queries = f"the sums over {QUERIES} random ranges, and of the {BINS} means drawn"
        click.echo(f"\nError (root mean square) of {queries}:\n\n{as_table(_errors(values, private, paper, edges))}")
        if not no_picture:
            click.echo("\n" + _draw(values, private, paper, edges, picture, epsilon))


def _errors(truth: Floats, private: Release, paper: Release, edges: Indices) -> list[tuple[str, str]]:
    generator = np.random.default_rng(QUERY_SEED)
    lengths = generator.integers(1, MAX_LENGTH, QUERIES, endpoint=True)
    starts = generator.integers(HOLDOUT, truth.size - lengths + 1)
    before, rows = np.concatenate(([0.0], np.cumsum(truth))), []
    for first, last in ((starts, starts + lengths), (edges[:-1], edges[1:])):
        answers = private.sum(first, last), paper.sum(first - HOLDOUT, last - HOLDOUT), 0.0
        rows.append([float(np.mean((before[last] - before[first] - answer) ** 2)) ** 0.5 for answer in answers])
    whole, parts = rows[0][-1], rows[1][-1]
    return [
        (name, f"{one:14,.0f}   {one / whole:8.3%} of the true sums  {two / parts:8.3%} of the means{note}")
        for (name, note), one, two in zip(ROWS.items(), *rows, strict=True)
    ]


def _draw(truth: Floats, private: Release, paper: Release, edges: Indices, picture: Path, epsilon: float) -> str:
    try:
        figure = pictures.new_figure(9.0, 5.4)
    except ImportError:
        return "No picture: matplotlib is not installed (pip install 'fastdp-streams[plot]')."
    first, last = HOURS
    begin = first + (last - first) * paper.offset / DAY_LENGTH
    hours = begin + (last - begin) * (np.arange(BINS) + 0.5) / BINS
    published = np.concatenate([np.zeros(paper.offset), paper.values])
    true, *means = (
        np.add.reduceat(values, edges[:-1]) / np.diff(edges) for values in (truth, published, private.values)
    )
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    upper.plot(hours, true, color=pictures.TRUTH, linewidth=3.0, alpha=0.45, label="truth")
    lower.axhline(0.0, color=pictures.TRUTH, linewidth=0.8)
    for (name, colour), line in zip(LINES.items(), means, strict=True):
        upper.plot(hours, line, color=colour, linewidth=1.3, label=name)
        lower.plot(hours, line - true, color=colour, linewidth=1.2)
    upper.set(ylim=(1.05 * min(0.0, np.min(means)), None), ylabel=f"queries per interval\n({BINS} means)")
    upper.legend(frameon=False, loc="best")
    upper.set_title(
        f"A synthetic day of DNS queries and its releases, epsilon = {epsilon:g}", loc="left", fontsize=11
    )
    shown = np.arange(12, 33, 4)
    lower.set(ylabel="release\nminus truth", xlabel="time of day", xlim=(begin, last))
    lower.set_xticks(shown, [f"{hour % 24}:00" for hour in shown])
    for ax in (upper, lower):
        pictures.tidy(ax)
    figure.align_ylabels()
    pictures.save(figure, picture)
    return f"Picture: {picture}"


# The synthetic day.

#: Public bound of the DNS stream in ToPS Table 1.
DNS_BOUND = 2000

# Queries per interval at the quietest and the busiest time of day, and when the quietest is.
_QUIET, _BUSY, _QUIET_HOUR = 18.0, 57.3, 4.0
# The day begins in the morning's rise, where the first hour and a half looks like the whole day: a
# hold-out taken at night would choose a threshold for the night.
_FIRST_HOUR = 10.0
# Gamma-distributed load makes the counts negative binomial; bursts multiply a few intervals.
_LOAD_SHAPE = 4.4
_BURST_SHARE, _BURST_SHAPE, _BURST_SCALE = 0.006, 3.0, 0.5


def dns_like_day(n: int = DAY_LENGTH, seed: int = 7) -> Integers:
    """Synthetic numbers of DNS queries in `n` parts of a day, int64[n] in [0, 2000].

    Modelled on ToPS Table 1 by a daily rate, gamma load, and rare bursts.

    ========  =====  ===  ===  =====  ====
    stream    mean   p85  p95  p99.5  max
    ========  =====  ===  ===  =====  ====
    Table 1   37.9   63   85   135    617
    this      38.0   62   86   134    640
    ========  =====  ===  ===  =====  ====

    Examples
    --------
    >>> import fastdp.cli.demo_command
    >>> fastdp.cli.demo_command.dns_like_day(1000).shape
    (1000,)
    """
    n = validation.integer("n", n, 1)
    generator = np.random.default_rng(validation.integer("seed", seed, 0))
    hours = _FIRST_HOUR + 24.0 * np.arange(n) / n
    wave = 0.5 - 0.5 * np.cos(2.0 * np.pi * (hours - _QUIET_HOUR) / 24.0)
    load = (_QUIET + (_BUSY - _QUIET) * wave) * generator.gamma(_LOAD_SHAPE, 1.0 / _LOAD_SHAPE, n)
    bursts = np.flatnonzero(generator.random(n) < _BURST_SHARE)
    load[bursts] *= 1.0 + generator.gamma(_BURST_SHAPE, _BURST_SCALE, bursts.size)
    counts: Integers = generator.poisson(load)
    return np.minimum(counts, DNS_BOUND, out=counts)
