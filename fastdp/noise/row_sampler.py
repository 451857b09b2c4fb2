"""Exact draws of many streams in one call, each those that ``sampler.fill`` gives for its key."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from fastdp.data.kinds import Integers
from fastdp.noise import sampler
from fastdp.noise.row_words import RowWords, distinct_of
from fastdp.noise.sampler import NO_WORDS, ONE_WORD_SCALE, Law
from fastdp.noise.words import CHUNK
from fastdp_kernels import double_double, guarded_log

#: Rows of more draws than this gain nothing from being drawn together.
LONG_ROW = 4 * CHUNK


def fill_rows(
    out: Integers,
    laws: Sequence[Law],
    which: Integers,
    words: RowWords,
    streams: Integers,
    numbers: Integers,
) -> None:
    """Overwrite the rows of ``out`` with draws for many streams, each those that ``sampler.fill`` gives for its key.

    Parameters
    ----------
    out : int64[n, width], C-contiguous
        Receives the draws.
    laws : sequence of Law
        Distinct laws, one-sided all or none.
    which : int64[n]
        The law of each row.
    words : RowWords
        The pieces of word streams that a row is drawn from.
    streams, numbers : int64[n]
        As :meth:`RowWords.fill` takes them.
    """
    alone = words.width > LONG_ROW or words.keys[0].given is not None
    if alone or max(law.scale for law in laws) > ONE_WORD_SCALE:
        for row, (stream, number) in enumerate(zip(streams.tolist(), numbers.tolist(), strict=True)):
            begin = 0
            for piece, count in words.pieces:
                part = out[row, begin : begin + count]
                sampler.fill(part, laws[which[row]], words.key_of(row, stream), piece._replace(number=number))
                begin += count
        return
    sign_bit = np.uint64(0 if laws[0].one_sided else 1)
    scales = np.array([law.scale_pair[0] for law in laws])[which]
    offsets = np.array([law.offset_pair[0] for law in laws])[which]
    # A part's counters, words and draws stay in the second cache.
    size = max(1, CHUNK // max(words.width, 1))
    positions: Integers = np.empty(size * words.width, np.int64)
    doubtful: list[tuple[Integers, NDArray[np.uint64]]] = []
    for first, raw in words.parts(streams, numbers, size):
        part = out[first : first + size]
        flat, drawn = raw.reshape(-1), part.reshape(-1)
        if len(laws) == 1:
            waiting = guarded_log.draw_double(flat, scales[0], offsets[0], sign_bit, drawn, positions)
        else:
            own = slice(first, first + size)
            waiting = guarded_log.draw_rows(raw, scales[own], offsets[own], sign_bit, part, positions)
        if waiting:
            doubtful.append((positions[:waiting] + first * words.width, flat[positions[:waiting]]))
    if doubtful:
        places, open_words = map(np.concatenate, zip(*doubtful, strict=True))
        _settle_rows(out.reshape(-1), places, open_words, laws, which, words, streams, numbers)


def _settle_rows(
    drawn: Integers,
    places: Integers,
    raw: NDArray[np.uint64],
    laws: Sequence[Law],
    which: Integers,
    words: RowWords,
    streams: Integers,
    numbers: Integers,
) -> None:
    """The doubtful draws of some rows, from their words."""
    owners = which[places // words.width]
    sign_bit = np.uint64(0 if laws[0].one_sided else 1)
    settled: Integers = np.empty(places.size, np.int64)
    k: int
    for k in distinct_of(owners)[0].tolist():
        law = laws[k]
        mine = np.flatnonzero(owners == k)
        left = double_double.draw_double_double(
            raw, NO_WORDS, *law.scale_pair, *law.offset_pair, sign_bit, mine, mine.size, settled
        )
        for i in mine[:left].tolist():
            row, column = divmod(int(places[i]), words.width)
            stream, position = words.locate(column)
            own = words.key_of(row, int(streams[row]))
            settled[i] = sampler.settle_at(int(raw[i]), law, own, stream._replace(number=int(numbers[row])), position)
    drawn[places] = settled


def draw_rows(
    words: RowWords,
    scales: Integers,
    law_of: Callable[[int], Law],
    streams: Integers,
    numbers: Integers,
) -> Integers:
    """Draws for many streams, int64[n, words.width], the law of row i being ``law_of(scales[i])``."""
    rows: Integers = np.empty((streams.size, words.width), np.int64)
    distinct, which = distinct_of(scales)
    fill_rows(rows, [law_of(each) for each in distinct.tolist()], which, words, streams, numbers)
    return rows
