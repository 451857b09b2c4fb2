"""Further couplings of the package: borders of noise batches, lengths of blocks, choices alone, planted cells."""

from __future__ import annotations

from functools import partial

import numpy as np

from fastdp.noise.key import Key
from fastdp.perturbers import Blocks, Flat
from fastdp.spatial.adaptive_phdstream import AdaptivePHDStream
from fastdp.thresholds import Fixed
from fastdp.thresholds.base import ThresholdTask, held_out
from fastdp_lab.audit.couplings import COUPLINGS
from fastdp_lab.audit.couplings.check import KEY, Draw, Generator, Instance, Outputs, Shift, pick
from fastdp_lab.audit.couplings.points import COORDINATES, Batch, event_of, of_points, shape_of
from fastdp_lab.audit.couplings.streams import (
    BOUND,
    Floats,
    Make,
    altered,
    choice_shift,
    noisy_choice,
    of_pair,
    of_stream,
    publisher,
    values_of,
)

#: Values of a stream on which blocks have changed their length.
LONG = 1200


def turning(generator: Generator) -> tuple[Make, Floats, Floats, int]:
    """A publisher whose blocks change their length, and streams that differ where true sums would change it.

    On the way from a calm stream to a wild one, value by value, lengths change somewhere.
    """
    perturber = Blocks(pick(generator, "spread", "spike", "none"))
    make = publisher(generator, perturber=perturber, threshold=Fixed(8.0), resolution=1.0, max_range=256)
    wild = np.where(np.arange(LONG) // int(pick(generator, 1, 8, 32)) % 2, 8.0, 0.0)
    calm = np.full(LONG, float(pick(generator, 0.0, 3.0, 8.0)))

    def lengths(changed: int) -> bytes:
        # The noise of KEY is 0.
        revision = make(key=KEY).release(np.concatenate([wild[:changed], calm[changed:]])).revision
        assert revision is not None
        return revision.exponents.tobytes()

    low, high, first = 0, LONG, lengths(0)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if lengths(middle) == first else (low, middle)
    streams = [np.concatenate([wild[:changed], calm[changed:]]) for changed in (low, high)]
    return make, streams[0], streams[1], low


def adaptive_lengths(generator: Generator) -> Instance:
    """Where true sums would change the length of blocks."""
    make, x, there, place = turning(generator)
    return of_pair(generator, make, x, there, [place])


def adaptive_batches(generator: Generator) -> Instance:
    """Blocks of one value past the border of a batch of noise."""
    make = publisher(generator, perturber=Blocks(), max_range=4, epsilon=2.0)
    return of_stream(generator, make, 2100, pick(generator, 1023, 1024, 1025, 2047, 2048))


def flat_batches(generator: Generator) -> Instance:
    """Past the border of a batch of noise."""
    make = publisher(generator, perturber=Flat())
    return of_stream(generator, make, 65_600, pick(generator, 65_535, 65_536, 65_599))


def choices(generator: Generator) -> Instance:
    """Noisy max alone, on hold-outs of few values, where ties are frequent."""
    rule = noisy_choice(generator)
    task = ThresholdTask(
        epsilon=float(pick(generator, 0.5, 1.0, 6.0)),
        bound=BOUND,
        holdout=int(pick(generator, 2, 5, 30)),
        max_range=4,
        resolution=1.0,
        publish_epsilon=1.0,
        noise_constant=1.0,
    )
    x = values_of(generator, task.holdout)
    there = altered(generator, x, int(generator.integers(task.holdout)))

    def publish(key: Key, values: Floats) -> Outputs:
        chooser = rule.start(task)
        chooser.observe(values)
        yield "theta", chooser.choose(held_out(key, chooser.pack()))

    shift: Shift = lambda table, shifts: choice_shift(rule, task, table.key, x, there, shifts)  # noqa: E731
    return Instance(rule.guarantee(task).epsilon, publish, x, there, shift)


def planted(generator: Generator) -> Instance:
    """Next to nothing at first, then much at one place: PrivTree chooses the cells of a later count."""
    options = {**shape_of(generator), "epsilon": 6.0, "max_depth": 6, "period": int(pick(generator, 1, 2))}
    dim, count = options["domain"].dim, 6
    batches: list[Batch] = [(np.zeros((0, dim)), np.zeros((0, dim)), 0)]
    batches += [(np.full((30, dim), generator.choice(COORDINATES)), np.zeros((0, dim)), 0) for _ in range(count - 1)]
    event = event_of(generator, dim, count)
    return of_points(generator, partial(AdaptivePHDStream, **options), count, event=event, batches=batches)


#: The couplings of the package, and these.
SHIPPED: dict[str, Draw] = {
    **COUPLINGS,
    "adaptive-lengths": adaptive_lengths,
    "adaptive-batches": adaptive_batches,
    "flat-batches": flat_batches,
    "choices": choices,
    "phdstream-planted": planted,
}
