"""The pass over n streams, as ``fixed_pass``, where released sums decide block lengths, 2^k, and published values."""

from __future__ import annotations

import numpy as np

from fastdp_kernels._jit import Record, few_zeros, inline, kernel, plus, records
from fastdp_kernels.noise.chacha import CHAIN, block_words, draw_words
from fastdp_kernels.noise.guarded_log import DOUBTFUL
from fastdp_kernels.streams.block_lengths import LENGTHS, MEMORY, SCALES, close_block, follow_group, take_group
from fastdp_kernels.streams.online_pass import sum_part, sum_signed
from fastdp_kernels.streams.seasons import SEASON, bend, follow_season

#: Why a row stopped early: a doubtful draw; another scale of noise; a group whose sum is to be released; blocks that
#: found no room; scales that its memory has no place for.
UNSETTLED, SCALED, ENDED, FULL, REACHED = 1, 2, 3, 4, 5
#: The draw of a row that its caller has settled is of its full block, or of the group that ended.
OF_BLOCK, OF_ENDED = 1, 2
#: Added to the number of blocks before a group's end, for the words of its sum.
OF_GROUP = 2**55
#: Public parameters of a pass: 1 / resolution, the largest step that a value counts as under the first threshold
#: (negative: in size, values of any sign count), the first threshold in steps, in which sums are measured, and in
#: units of the input; and the bound in steps, which a threshold that rises stops at.
PUBLIC = records([(name, np.float64) for name in ("per_unit", "top", "theta_steps", "theta", "bound")])
#: A block's exponent and released sum in thresholds; its published values: prediction, extra, and how many values the
#: extra is for; its place in a group from 1 on, 0 outside; of a group's last block, the group's
#: released sum in thresholds, else NaN.
BLOCK = records(
    [(name, np.float64) for name in ("exponent", "released", "prediction", "extra", "catch", "place", "group")]
)
_FIRST = MEMORY.fields["position"][1] // 8
#: Numbers of a memory that there is one of; of the others there is one a scale.
SINGLES = MEMORY.names[MEMORY.names.index("position") :]
BY_SCALE = _FIRST // SCALES
#: Numbers of a stream between two calls; a memory's numbers by scale are kept beside them.
ADAPTIVE_ROW = records(
    [
        ("n_seen", np.int64),  # values consumed, the hold-out included
        ("cycle", np.int64),  # thresholds chosen so far
        ("theta_steps", np.int64),  # the first threshold in grid steps; 0 in the hold-out
        ("blocks", np.int64),  # closed blocks
        ("filled", np.int64),  # values in the open block
        ("open_sum", np.int64),  # their exact sum in grid steps; secret
        ("group_sum", np.int64),  # exact sum of the open group of blocks; secret
        ("taken", np.int64),  # in a call, and 0 between calls: values that are consumed,
        ("closed", np.int64),  # blocks that the last visit closed,
        ("stopped", np.int64),  # why it stopped,
        ("given", np.int64),  # and which draw its caller has settled,
        ("drawn", np.int64),  # as this noise; secret
        ("chain", np.uint64, CHAIN),  # chain key of bound noise; secret
        *((name, np.float64) for name in SINGLES),
    ]
)
_NUMBERS, _OWN = ADAPTIVE_ROW.itemsize // 8, ADAPTIVE_ROW.fields["position"][1] // 8
_SEASON, _MEMORY = SEASON.itemsize // 8, MEMORY.itemsize // 8


@inline
def sum_values(
    values: np.ndarray, per_unit: float, top: float, lengths: np.ndarray | None
) -> tuple[np.int64, np.int64]:
    """Sum clipped, rounded values; negative flag if one is not finite."""
    # Of both kinds of sums the compiler makes that which is needed.
    if lengths is not None:
        return sum_signed(values, per_unit, -top)
    return sum_part(values, per_unit, top)


@inline
def top_of(public: Record, unit: float) -> float:
    """Largest step that a value counts as under the threshold in use."""
    top = public.top
    if unit != 1.0 and top >= 0.0:
        bound = public.bound
        top = np.floor(unit * public.theta_steps) if unit < bound / public.theta_steps else bound
        top = top if top < bound else bound
    return float(top)


@inline
def draw_bound(
    chain: np.ndarray, index: int, total: np.int64, distribution: np.ndarray, known: bool, noise: np.int64
) -> np.int64:
    """Noise of block ``index``, bound to its sum ``total`` (``noise`` if ``known``); moves its chain key on.

    DOUBTFUL where the caller must draw: the chain key then stays.
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
    """Publish values of a block after ``filled`` of them; the first ``catch`` get ``extra``."""
    usual, caught = prediction * theta, int(catch) - filled
    caught = caught if caught > 0 else 0
    caught = caught if caught < out.size else out.size
    out[:caught] = usual + extra * theta
    out[caught:] = usual


@inline
def publish_last(block: Record, length: float, theta: float, singles: bool, last: float) -> float:
    """Last value of a closed block: released sum and extra of a single value, else ``last``."""
    if singles and length == 1.0:
        return float((block.released + block.extra) * theta)
    return last


@kernel
def sum_bound(
    values: np.ndarray,
    public: Record,
    top: float,
    shape: Record,
    lengths: np.ndarray | None,
    noise: np.ndarray,
    chain: np.ndarray,
    distribution: np.ndarray,
    row: Record,
    memory: Record,
    blocks: Record,
    season: Record | None,
    bends: np.ndarray | None,
) -> int:
    """Clip, round and sum values; release each block's sum with its noise, and let it choose the next block.

    Returns the number of values consumed; -1 if one is NaN or infinite.

    Parameters
    ----------
    top, lengths
        Of :func:`top_of`, and of ``block_lengths.lengths_of_events``.
    noise : int64[any]
        Without a chain: of all blocks that have room.
    chain : uint64[4] or uint64[0]
        Chain key of the next block's noise, which is ``row.drawn`` if ``row.given``; moved on.
    distribution : float64[4 or 8]
        As for ``chacha.draw_words``; in a group that of its sum too.
    row, memory : ADAPTIVE_ROW, MEMORY
        Changed in place.  ``closed`` counts the blocks of the call; ``stopped`` is UNSETTLED where the full block's
        draw is doubtful, ENDED where that of a group's sum is, SCALED where noise gets another scale.
    blocks : BLOCK[any]
        Receives closed blocks, and the open one without its sum, until it is full.
    season, bends : SEASON or None, float64[n] or None
        Filter of a season, with ``memory``; receives each prediction less its block's mean.
    """
    at, closed = 0, 0
    flags = np.int64(0)
    while True:
        # The open block's published values; its sum is not there yet.
        block = blocks[closed]
        block.exponent, block.prediction, block.extra = memory.exponent, memory.prediction, memory.extra
        block.catch, block.group = memory.catch, np.nan
        block.place = memory.members + 1.0 if memory.group else 0.0
        if row.stopped:
            break
        room = (1 << int(memory.exponent)) - row.filled
        if room:
            if at == values.size or (room <= values.size - at and closed == blocks.size - 1):
                break
            part = room if room <= values.size - at else values.size - at
            if season is not None and bends is not None:
                bend(season, shape, row.filled, bends[at : at + part])
            total, part_flags = sum_values(values[at : at + part], public.per_unit, top, lengths)
            flags |= part_flags
            row.open_sum = plus(row.open_sum, total)
            row.filled += part
            at += part
            if part < room:
                break
        if not chain.size:
            drawn = noise[closed]
        else:
            known = row.given == OF_BLOCK
            drawn = draw_bound(chain, row.blocks, row.open_sum, distribution[:4], known, row.drawn)
            row.given = 0
            if drawn == DOUBTFUL:
                row.stopped = UNSETTLED
                break
        released = np.float64(plus(row.open_sum, drawn)) / public.theta_steps
        block.released = released
        exponent, level, unit, last = int(memory.exponent), memory.level, memory.unit, memory.last
        group = memory.group
        close_block(memory, released, shape, lengths)
        if shape.group:
            row.group_sum = plus(row.group_sum, row.open_sum)
            if follow_group(memory, released, memory.unit != unit, shape):
                drawn = DOUBTFUL
                if chain.size:
                    # The chain is bound to all of the group's values already, and stays.
                    words = block_words(chain, OF_GROUP + row.blocks, row.group_sum, 0)
                    drawn = draw_words(words[CHAIN], words[CHAIN + 1], distribution[4:])
                if drawn == DOUBTFUL:
                    row.stopped = ENDED
                else:
                    block.group = np.float64(plus(row.group_sum, drawn)) / public.theta_steps
                    take_group(memory, block.group, shape)
            if memory.members == 0.0:
                row.group_sum = 0
            if group != memory.group:
                row.stopped = SCALED
        if season is not None:
            follow_season(season, released, exponent, level, unit, last, shape)
        closed += 1
        row.blocks += 1
        row.filled = 0
        row.open_sum = 0
        if memory.unit != unit:
            # Another threshold: another distribution.
            row.stopped = SCALED
    row.closed = closed
    return -1 if flags < 0 else at


@inline
def emit_adaptive(blocks: Record, filled: int, theta: float, singles: bool, out: np.ndarray) -> None:
    """Publish predictions of :func:`sum_bound`'s blocks, after ``filled`` values of the first, into float64[n].

    ``theta``: in units of the input; ``singles``: a block of one value publishes its released sum.
    """
    at = 0
    for j in range(blocks.shape[0]):
        block = blocks[j]
        length = 1 << int(block.exponent)
        end = at + length - filled
        end = end if end < out.size else out.size
        publish_part(block.prediction, block.extra, block.catch, filled, theta, out[at:end])
        # The last value of a block that was full before is not among these.
        if j < blocks.shape[0] - 1 and end > 0:
            out[end - 1] = publish_last(block, np.float64(length), theta, singles, out[end - 1])
        at = end
        filled = 0


@inline
def _move(row: np.ndarray, scales: np.ndarray, entries: np.ndarray, back: bool) -> None:
    # Between a memory's entries and a row's numbers, with those by scale (float64[BY_SCALE, s]).
    for field in range(BY_SCALE):
        for k in range(scales.shape[1]):
            if back:
                scales[field, k] = entries[field * SCALES + k]
            else:
                entries[field * SCALES + k] = scales[field, k]
    for k in range(_NUMBERS - _OWN):
        if back:
            row[_OWN + k] = entries[_FIRST + k]
        else:
            entries[_FIRST + k] = row[_OWN + k]


@kernel
def advance_rows(
    values: np.ndarray,
    starts: np.ndarray,
    counts: np.ndarray,
    which: np.ndarray,
    public: Record,
    shape: Record,
    lengths: np.ndarray | None,
    distribution: np.ndarray,
    rows: Record,
    scales: np.ndarray,
    season: Record | None,
    blocks: Record,
    ends: np.ndarray,
    waiting: np.ndarray,
    out: np.ndarray,
    out_starts: np.ndarray,
) -> int:
    """Consume each row's values and publish one for each, while blocks close.

    Returns the number of calls that wait, as their row ``stopped`` (others are done); or, as -1 - i, the first with a
    value that is not finite.  Calls are as for ``fixed_pass.publish_rows``; those of one row happen in order.

    Parameters
    ----------
    public, shape, lengths, distribution, season, blocks
        As for :func:`sum_bound`, the records as arrays.
    rows, scales : ADAPTIVE_ROW[n], float64[n, BY_SCALE, s]
        Changed in place; the caller makes open draws and resets ``stopped`` before a row goes on.
    ends : int64[m] or int64[0]
        Receives the end of each call's blocks in ``blocks``, if wanted.
    waiting : int64[m]
        Receives the calls that wait.
    """
    p, form, events = public[0], shape[0], lengths is not None
    numbers = rows.view(np.float64).reshape(rows.size, _NUMBERS)
    # Noise is that of the chain.
    scratch, no_noise = few_zeros(_MEMORY), waiting[:0]
    waits, made = 0, 0
    for i in range(counts.size):
        row = rows[which[i]]
        if row.stopped:
            # An earlier call of this row waits.
            if ends.size:
                ends[i] = made
            waiting[waits] = i
            waits += 1
            continue
        at, to, left = starts[i] + row.taken, out_starts[i] + row.taken, counts[i] - row.taken
        part, length = values[at : at + left], np.int64(LENGTHS[int(row.exponent)])
        if season is None and not row.given and row.filled + left < length:
            total, flags = sum_values(part, p.per_unit, top_of(p, row.unit), lengths)
            if flags < 0:
                return -1 - i
            publish_part(row.prediction, row.extra, row.catch, row.filled, p.theta, out[to : to + left])
            row.open_sum = plus(row.open_sum, total)
            row.filled += left
        elif np.int64(row.position) + row.filled + left >= 1 << scales.shape[2]:
            row.stopped, left = REACHED, 0
        else:
            if season is None:
                waves, memory = None, scratch.view(MEMORY)[0]
                _move(numbers[which[i]], scales[which[i]], scratch, False)
            else:
                waves = season[which[i]]
                memory, entries = waves.plain, season.view(np.float64).reshape(season.size, _SEASON)[which[i]]
                _move(numbers[which[i]], scales[which[i]], entries, False)
            if row.given == OF_ENDED:
                group = memory.group
                take_group(memory, np.float64(plus(row.group_sum, row.drawn)) / p.theta_steps, form)
                row.group_sum, row.given = 0, 0
                if memory.group != group:
                    row.stopped = SCALED
            filled, known = row.filled, row.given
            bends = None if season is None else np.empty(left)
            used = sum_bound(
                part,
                p,
                top_of(p, memory.unit),
                form,
                lengths,
                no_noise,
                row.chain,
                distribution,
                row,
                memory,
                blocks[made:],
                waves,
                bends,
            )
            if used < 0:
                return -1 - i
            emit_adaptive(blocks[made : made + row.closed + 1], filled, p.theta, events, out[to : to + used])
            if known and row.closed:
                # It was published already.
                block = blocks[made]
                out[to - 1] = publish_last(block, np.float64(length), p.theta, events, out[to - 1])
            if bends is not None:
                for k in range(used):
                    out[to + k] += p.theta * bends[k]
            if season is None:
                _move(numbers[which[i]], scales[which[i]], scratch, True)
            else:
                _move(numbers[which[i]], scales[which[i]], entries, True)
            left = used
            made += row.closed if ends.size else 0
        row.taken += left
        if ends.size:
            ends[i] = made
        if row.taken == counts[i] and not row.stopped:
            row.n_seen += counts[i]
            row.taken, row.closed, row.drawn = 0, 0, 0
        else:
            row.stopped = row.stopped if row.stopped else FULL
            waiting[waits] = i
            waits += 1
    return waits
