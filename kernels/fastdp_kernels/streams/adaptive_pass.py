"""The online pass where released sums decide block lengths and published values.

n values; a block has 2^k of them.  All but the open sum is a function of released sums.
"""

from __future__ import annotations

import numpy as np

from fastdp_kernels._jit import Record, inline, kernel, plus, records
from fastdp_kernels.noise.chacha import CHAIN, block_words, draw_words
from fastdp_kernels.noise.guarded_log import DOUBTFUL
from fastdp_kernels.streams.block_lengths import LENGTHS, MEMORY, SCALES, close_block, follow_group, take_group
from fastdp_kernels.streams.online_pass import sum_part, sum_signed
from fastdp_kernels.streams.seasons import bend, follow_season

#: Why the pass stopped early: a doubtful draw; another scale of noise; a group whose sum is to be released.
UNSETTLED, SCALED, ENDED = 1, 2, 3
#: Added to the number of blocks before a group's end, for the words of its sum.
OF_GROUP = 2**55
#: Public parameters of a pass: 1 / resolution, the largest step that a value counts as (negative: in size, values of
#: any sign count), the first threshold in steps, in which sums are measured, and in units of the input; and the bound
#: in steps, which a threshold that rises stops at.
PUBLIC = records([(name, np.float64) for name in ("per_unit", "top", "theta_steps", "theta", "bound")])
#: A block's exponent, released sum in thresholds, and what its values were published as: prediction, extra, and how
#: many values the extra is for; its place in a group from 1 on, 0 outside; of a group's last block, the group's
#: released sum in thresholds, else NaN.
BLOCK = records(
    [(name, np.float64) for name in ("exponent", "released", "prediction", "extra", "catch", "place", "group")]
)


@inline
def sum_values(values: np.ndarray, public: Record, lengths: np.ndarray | None) -> tuple[np.int64, np.int64]:
    """Sum of clipped, rounded values; negative flag if one is not finite."""
    if lengths is None:
        return sum_part(values, public.per_unit, public.top)
    return sum_signed(values, public.per_unit, -public.top)


@inline
def draw_bound(
    chain: np.ndarray, index: int, total: np.int64, distribution: np.ndarray, known: bool, noise: np.int64
) -> np.int64:
    """Noise of block ``index``, bound to its sum ``total``, and its chain key moved on: ``noise`` if ``known``.

    DOUBTFUL where the caller must draw: the chain key is then as it was.
    """
    words = block_words(chain, index, total, 0)
    if not known:
        noise = draw_words(words[CHAIN], words[CHAIN + 1], distribution)
    if noise != DOUBTFUL:
        # Assigned as arrays, Numba would compile the text of an error about their sizes besides: two seconds.
        for i in range(CHAIN):
            chain[i] = words[i]
    return noise


@inline
def publish_part(prediction: float, extra: float, catch: float, filled: int, theta: float, out: np.ndarray) -> None:
    """Publish values of a block that already has ``filled``; its first ``catch`` values get ``extra``."""
    usual, caught = prediction * theta, int(catch) - filled
    caught = caught if caught > 0 else 0
    caught = caught if caught < out.size else out.size
    out[:caught] = usual + extra * theta
    out[caught:] = usual


@inline
def publish_last(block: Record, released: float, length: float, theta: float, singles: bool, last: float) -> float:
    """The last value of a block that closes, from its released sum; ``last`` if that does not show in it."""
    if singles and length == 1.0:
        return float((released + block.extra) * theta)
    return last


@kernel
def sum_bound(
    values: np.ndarray,
    public: Record,
    shape: Record,
    lengths: np.ndarray | None,
    noise: np.ndarray,
    chain: np.ndarray,
    distribution: np.ndarray,
    rows: Record,
    memory: Record,
    blocks: Record,
    season: Record | None,
    bends: np.ndarray | None,
) -> int:
    """Clip, round and sum values; release each block's sum with its noise, and let it choose the next block.

    Returns the number of values consumed; -1 if one is NaN or infinite.

    Parameters
    ----------
    values : float64[n]
        In units of the input.
    public : PUBLIC[1]
        With ``lengths`` its ``top`` is negative.
    shape : SHAPE[1]
        Public parameters of ``block_lengths``.
    lengths : float64[5] or None
        ``block_lengths.lengths_of_events`` of ``shape``.
    noise : int64[any]
        Receives the noise of blocks that close; the pass stops where it is full.
    chain : uint64[4]
        Chain key of the next block's noise, moved on in place; uint64[0]: all of ``noise`` is given.
    distribution : float64[4 or 8]
        Of the noise, as for ``chacha.draw_words``; in a group that of its sum besides.
    rows : fixed_pass.STREAM_ROW[1]
        Changed in place, but ``blocks`` (closed before the call) and ``given`` (how many entries of ``noise`` are
        given, as the caller has settled a doubtful draw).  ``closed`` counts the blocks of the call; ``stopped`` is
        UNSETTLED if the open block is full and its draw doubtful, SCALED where noise gets another scale, ENDED where
        the draw of a group's sum is doubtful (``block_lengths.end_group``).
    memory : MEMORY[1]
        Changed in place.
    blocks : BLOCK[noise.size + 1]
        Receives closed blocks, and the open one without its sum.
    season : SEASON[1] or None
        Filter of a season, whose first part is ``memory``; changed in place.
    bends : float64[n] or None
        With a season: receives each prediction less its block's mean.
    """
    public, shape, counters, memory = public[0], shape[0], rows[0], memory[0]
    at, closed = 0, counters.closed
    flags = np.int64(0)
    while True:
        # What the open block's values are published as; its sum is not there yet.
        block = blocks[closed]
        block.exponent, block.prediction, block.extra = memory.exponent, memory.prediction, memory.extra
        block.catch, block.group = memory.catch, np.nan
        block.place = memory.members + 1.0 if memory.group else 0.0
        if counters.stopped:
            break
        room = (1 << int(memory.exponent)) - counters.filled
        if room:
            if at == values.size or (room <= values.size - at and closed == noise.size):
                break
            part = room if room <= values.size - at else values.size - at
            if season is not None and bends is not None:
                bend(season[0], shape, counters.filled, bends[at : at + part])
            total, part_flags = sum_values(values[at : at + part], public, lengths)
            flags |= part_flags
            counters.open_sum = plus(counters.open_sum, total)
            counters.filled += part
            at += part
            if part < room:
                break
        if chain.size:
            known, index = closed < counters.given, counters.blocks + closed
            drawn = draw_bound(chain, index, counters.open_sum, distribution[:4], known, noise[closed])
            if drawn == DOUBTFUL:
                counters.stopped = UNSETTLED
                break
            noise[closed] = drawn
        released = np.float64(plus(counters.open_sum, noise[closed])) / public.theta_steps
        block.released = released
        exponent, level, unit, last = int(memory.exponent), memory.level, memory.unit, memory.last
        group = memory.group
        close_block(memory, released, shape, lengths)
        if shape.group:
            counters.group_sum = plus(counters.group_sum, counters.open_sum)
            if follow_group(memory, released, memory.unit != unit, shape):
                drawn = DOUBTFUL
                if chain.size:
                    # The chain is bound to all of the group's values already, and stays.
                    words = block_words(chain, OF_GROUP + counters.blocks + closed, counters.group_sum, 0)
                    drawn = draw_words(words[CHAIN], words[CHAIN + 1], distribution[4:])
                if drawn == DOUBTFUL:
                    counters.stopped = ENDED
                else:
                    block.group = np.float64(plus(counters.group_sum, drawn)) / public.theta_steps
                    take_group(memory, block.group, shape)
            if memory.members == 0.0:
                counters.group_sum = 0
            if group != memory.group:
                counters.stopped = SCALED
        if season is not None:
            follow_season(season[0], released, exponent, level, unit, last, shape)
        closed += 1
        counters.filled = 0
        counters.open_sum = 0
        if memory.unit != unit:
            # Another threshold: another distribution.
            counters.stopped = SCALED
    counters.closed = closed
    return -1 if flags < 0 else at


@kernel
def emit_adaptive(blocks: Record, filled: int, theta: float, singles: bool, out: np.ndarray) -> None:
    """Publish predictions, block by block, into float64[n].

    Parameters
    ----------
    blocks : BLOCK[any]
        Of :func:`sum_bound`, the open one last.
    filled : int
        Values already published in the first block.
    theta : float
        The threshold in units of the input.
    singles : bool
        True if a block of one value publishes its released sum, and its correction.
    """
    at = 0
    for j in range(blocks.shape[0]):
        block = blocks[j]
        length = 1 << int(block.exponent)
        end = at + length - filled
        end = end if end < out.size else out.size
        publish_part(block.prediction, block.extra, block.catch, filled, theta, out[at:end])
        if j < blocks.shape[0] - 1:
            out[end - 1] = publish_last(block, block.released, np.float64(length), theta, singles, out[end - 1])
        at = end
        filled = 0


@kernel
def publish_open(values: np.ndarray, public: Record, rows: Record, memory: Record, out: np.ndarray) -> bool:
    """Publish values that leave the open block open: :func:`sum_bound` and :func:`emit_adaptive` in one call.

    False, with nothing changed, if the values fill it, or one is NaN or infinite.  ``public``: PUBLIC[1] with the
    first threshold's ``top``; ``memory`` stays.
    """
    public, row, memory = public[0], rows[0], memory[0]
    top = public.top
    if row.filled + values.size >= 1 << int(memory.exponent):
        return False
    if top < 0.0:
        total, flags = sum_signed(values, public.per_unit, -top)
    else:
        if memory.unit != 1.0:
            # Rounded as the facade rounds the threshold in use.
            bound = public.bound
            below = memory.unit < bound / public.theta_steps
            top = min(np.floor(memory.unit * public.theta_steps), bound) if below else bound
        total, flags = sum_part(values, public.per_unit, top)
    if flags < 0:
        return False
    publish_part(memory.prediction, memory.extra, memory.catch, row.filled, public.theta, out)
    row.open_sum = plus(row.open_sum, total)
    row.filled += values.size
    row.n_seen += values.size
    row.prediction = memory.prediction * public.theta
    return True


# One value each of many streams, in any order, in one pass.

#: Numbers of a memory that a fleet's stream keeps: all single ones but those of a threshold that rises, as a fleet's
#: is public.  They stand together in both records.
SINGLES = [
    name for name in MEMORY.names if MEMORY.fields["position"][1] <= MEMORY.fields[name][1] < MEMORY.fields["unit"][1]
]
#: State of a stream of a fleet: values in the open block, their exact sum, closed blocks, and the chain key; then
#: its numbers.
STREAM = records(
    [
        ("filled", np.int64),
        ("open_sum", np.int64),
        ("blocks", np.int64),
        ("chain", np.uint64, CHAIN),
        *((name, np.float64) for name in SINGLES),
    ]
)
#: Entries that a memory has one of by scale.
BY_SCALE = MEMORY.fields["position"][1] // 8 // SCALES
_NUMBERS = STREAM.itemsize // 8
_SINGLES, _FIRST, _OWN = len(SINGLES), MEMORY.fields["position"][1] // 8, STREAM.fields["position"][1] // 8


@kernel
def in_steps(value: np.ndarray, public: Record, lengths: np.ndarray | None) -> np.int64:
    """One value (float64[1]), clipped and rounded to steps."""
    return sum_values(value, public[0], lengths)[0]


@kernel
def furthest(rows: np.ndarray, times: np.ndarray, streams: Record) -> np.int64:
    """Greatest position, in values of their streams, that closing blocks reach; 0 if none closes.

    ``rows``: distinct streams; ``times``: number of values of each; ``streams`` as for :func:`publish_rows`.
    """
    reached = np.int64(0)
    for i in range(rows.size):
        stream = streams[rows[i]]
        filled = stream.filled + times[i]
        if filled >= np.int64(LENGTHS[int(stream.exponent)]):
            reached = max(reached, np.int64(stream.position) + filled)
    return reached


@kernel
def publish_rows(
    rows: np.ndarray,
    values: np.ndarray,
    begin: int,
    public: Record,
    events: bool,
    shape: Record,
    lengths: np.ndarray | None,
    distribution: np.ndarray,
    settled: np.ndarray,
    streams: Record,
    scales: np.ndarray,
    out: np.ndarray,
) -> int:
    """Consume a value a row, and publish one; returns the number of rows done, fewer than m before a doubtful draw.

    Parameters
    ----------
    rows, values : int64[m], float64[m]
        Stream of each value; finite, in units of the input.
    begin : int
        The first row to work on.
    public, shape, lengths, distribution
        As for :func:`sum_bound`.
    events : bool
        As ``singles`` of :func:`emit_adaptive`.
    settled : int64[0 or 1]
        Settled noise of the block that row ``begin`` closes.
    streams : STREAM[n]
        The streams, changed in place.
    scales : float64[n, BY_SCALE, s]
        Their memories' first s scales, more than these rows reach; changed in place.
    out : float64[m]
        Receives the published values.
    """
    public, shape = public[0], shape[0]
    memories, numbers = np.zeros(1, MEMORY), streams.view(np.float64).reshape(streams.size, _NUMBERS)
    memory, entries = memories[0], memories.view(np.float64)
    memory.unit, memory.reference = 1.0, -1.0
    kept = scales.shape[2]
    for row in range(begin, rows.size):
        number = rows[row]
        stream = streams[number]
        total, _ = sum_values(values[row : row + 1], public, lengths)
        open_sum = plus(stream.open_sum, total)
        filled = stream.filled + 1
        length = LENGTHS[int(stream.exponent)]
        published = stream.prediction * public.theta
        if filled <= np.int64(stream.catch):
            published += stream.extra * public.theta
        if filled < np.int64(length):
            stream.filled, stream.open_sum = filled, open_sum
            out[row] = published
            continue
        known = settled.size > 0 and row == begin
        drawn = draw_bound(
            stream.chain, stream.blocks, open_sum, distribution, known, settled[0] if known else np.int64(0)
        )
        if drawn == DOUBTFUL:
            return row
        released = np.float64(plus(open_sum, drawn)) / public.theta_steps
        out[row] = publish_last(stream, released, length, public.theta, events, published)
        for field in range(BY_SCALE):
            for k in range(kept):
                entries[field * SCALES + k] = scales[number, field, k]
        for k in range(_SINGLES):
            entries[_FIRST + k] = numbers[number, _OWN + k]
        close_block(memory, released, shape, lengths)
        for field in range(BY_SCALE):
            for k in range(kept):
                scales[number, field, k] = entries[field * SCALES + k]
        for k in range(_SINGLES):
            numbers[number, _OWN + k] = entries[_FIRST + k]
        stream.filled, stream.open_sum, stream.blocks = 0, 0, stream.blocks + 1
    return rows.size
