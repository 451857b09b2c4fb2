"""How long the next block should be, from what was released: post-processing of noisy block sums.

A block of g values releases one sum with noise of variance nu.  Long blocks have little noise a value, but hide what
happens within them.  How much that is can be read off the sums already released: the squared difference of two
neighbouring sums of 2^k values has the mean h_k + 2 nu, where h_k, the energy of the stream at scale k, is what a
block of 2^(k+1) values would hide there.  Noise is known, so h_k can be estimated at the scale of the blocks and at
every coarser one; finer ones are extrapolated.

Everything is in units of the threshold (sums) and its square (variances); see ``docs/adaptive.md`` for derivations.

Memory, float64[MEMORY]: one entry a scale of COUNTS (differences seen, fading), ENERGIES (mean of their squares less
noise), NOISES (mean number of noises in them), PENDING (sum of the last block that has no partner yet),
PENDING_NOISES, PENDING_ENDS (where it ends); then single numbers.
"""

from __future__ import annotations

import numpy as np

from fastdp_kernels._jit import few_zeros, inline, kernel
from fastdp_kernels.streams.event_lengths import choose_event_exponent

SCALES = 40
COUNTS = 0
ENERGIES = SCALES
NOISES = 2 * SCALES
PENDING = 3 * SCALES
PENDING_NOISES = 4 * SCALES
PENDING_ENDS = 5 * SCALES
#: Values in closed blocks, where the last choice was made, the exponent chosen, and the last block's.
POSITION = 6 * SCALES
DECIDED = POSITION + 1
EXPONENT = POSITION + 2
LAST = POSITION + 3
#: The signal: variance a value of what is independent between blocks, and by which the level moves a value.
WHITE = POSITION + 4
DRIFT = POSITION + 5
#: The level, a value, with its variance; and what was released less what was published.
LEVEL = POSITION + 6
VARIANCE = POSITION + 7
CARRY = POSITION + 8
#: What a value of the open block is published as, and what the first of them make up for besides.
PREDICTION = POSITION + 9
EXTRA = POSITION + 10
#: The level's variance before the last sum came.
BEFORE = POSITION + 11
#: How many values at the open block's begin make up for what is open.
CATCH = POSITION + 12
#: The threshold in use, in units of the first one; the mean of a value in the hold-out's blocks, or -1 where the
#: threshold stays as it is; and values since the threshold was last asked about, their sum, and noises in it.
UNIT = POSITION + 13
REFERENCE = POSITION + 14
SPAN = POSITION + 15
SPAN_TOTAL = POSITION + 16
SPAN_NOISES = POSITION + 17
#: While the threshold jumps: by what factor it did last (0: it does not), and the mean before the first rise, or 0;
#: and the highest threshold so far.
JUMP = POSITION + 18
CUT_MEAN = POSITION + 19
HIGHEST = POSITION + 20
MEMORY = POSITION + 21

#: Public parameters, float64[SHAPE]: variance of a block's noise, the prior signal, bounds of the exponent, the
#: scale of the prior, where blocks must end once (0: nowhere), 1 if a block makes up for the one before, or 0, and 1
#: if values are counts of events without a bound (``event_lengths``), or 0.
NOISE = 0
PRIOR_WHITE = 1
PRIOR_DRIFT = 2
LEAST = 3
MOST = 4
FIRST = 5
LIMIT = 6
SPREADS = 7
EVENTS = 8
#: Lengths of the queries that count: CLASSES of them, or one more where values are counts of events.
QUERIES = 9
#: The largest threshold, in units of the first one; 0: no limit.
TOP_UNIT = 14
#: 1 if the queries are a focus, and values no counts of events, or 0.
FOCUSED = 15
#: For each exponent: an account is settled over 2^-u times a block of so many values (:func:`fill_shares`).
CATCH_UPS = 16
#: For each exponent and class, the factors that depend on lengths alone (:func:`fill_shares`), so that a choice
#: divides little: of a block's noise in revised and in published values, of the closing error, of the energy.
SHARES = CATCH_UPS + SCALES
OWN, PUBLISHED, LATE, HIDDEN = 0, 1, 2, 3
FACTORS = 4

#: Blocks shorter than this many values share a choice.
CADENCE = 512.0
#: What a block left open is spread over 2^-CATCH_UP times as many values as it or the next block has, whichever is
#: longer, or by all of the next; with a focus, over what strays least in it, down to 2^-MAX_CATCH_UP times as many.
CATCH_UP = 1
MAX_CATCH_UP = 5
#: How fast differences are forgotten, by block.
FORGET = 0.98
#: The prior signal counts as so many differences at its scale.
PRIOR_COUNT = 2.0
#: Independent values of [0, 1] with a light tail have about this variance: more of it at the finest scale seen
#: comes from structure within, whose energy falls by FALL from scale to scale.
MAX_WHITE = 0.02
FALL = 4.0
#: Differences seen before a scale counts as seen.
SEEN = 0.5
#: Four classes of query length share the attention.
CLASSES = 4
SHAPE = SHARES + SCALES * CLASSES * FACTORS
#: The threshold rises by RISE_BY while the mean of a value, less CERTAIN standard deviations of its noise, is more
#: than MAX_RISE times what it was in the hold-out; that is taken MARGIN deviations too large, and MIN_REFERENCE.
MAX_RISE = 1.5
RISE_BY = 1.25
CERTAIN = 4.0
MARGIN = 2.0
MIN_REFERENCE = 0.07
#: Up to this many first thresholds a rise may be a swing, as of a day: the threshold falls back with the mean.  From
#: the first one it then rises again only where the mean is more than so many times what it was in the hold-out.
MAX_SWING = 2.0
#: A mean is known where CERTAIN deviations are at most this part of the threshold.
KNOWN = 0.25
#: Where the mean is above CUT_OFF thresholds, and nearer to the threshold than to what it was in the hold-out, the
#: threshold jumps until it is what it was, by the square of the last factor if it just did so, at most MAX_JUMP; that
#: is asked after 1 / EARLY of a span.
CUT_OFF = 0.75
MAX_JUMP = 64.0
EARLY = 8.0
#: What the mean is taken for in a hold-out where it was above CUT_OFF; and if the first rise does not make it USELESS
#: times as large, nothing was cut off.
EMPTY_REFERENCE = 0.15
USELESS = 1.25


#: 2^k; energies at scale k of independent values of variance 1 (two sums of 2^k values), and of a level that moves by
#: variance 1 a value (E[(S_1 - S_2)^2] = (2/3) g^3).
LENGTHS = 2.0 ** np.arange(SCALES)
INVERSES = 1.0 / LENGTHS
BY_WHITE = 2.0 * LENGTHS
BY_DRIFT = 2.0 / 3.0 * LENGTHS**3
#: What is left of a scale's structure so many scales below it.
FALLS = FALL ** -np.arange(SCALES)


@inline
def noise_of_query(ratio: float) -> float:
    """Noise of a range of ``ratio`` flat blocks at a random place, in variances of a block's."""
    return ratio - 1.0 / 3.0 if ratio >= 1.0 else ratio * ratio * (1.0 - ratio / 3.0)


@inline
def hidden_share(ratio: float) -> float:
    """Share of a scale's energy that enters the error of a query of ``ratio`` times 2^k values."""
    square = ratio * ratio
    return 0.25 * square / (1.0 + 1.5 * square)


@inline
def closing_error(by_white: float, by_drift: float, noise: float) -> float:
    """Variance of a block's sum about what was published in it: the filter's prediction from the blocks before it.

    ``by_white`` and ``by_drift`` are the parts of the energy at the block's scale.  In sums, the level moves by
    ``q`` from block to block and is seen with ``r``; the filter that has settled predicts with variance p.
    """
    q, r = 1.5 * by_drift, 0.5 * by_white + noise
    p = 0.5 * (q + np.sqrt(q * (q + 4.0 * r)))
    return float(p + 0.5 * by_white)


@inline
def late_share(ratio: float, share: float) -> float:
    """Share of the closing error that enters a query of ``ratio`` blocks.

    The running sum of published values strays over a block and comes back over the ``share`` of the next: short
    queries meet one of two slopes, long ones two independent places.
    """
    square = ratio * ratio
    slopes, far = 1.0 + 1.0 / share, 2.0 / 3.0 * (1.0 + share)
    return float(slopes * square / (1.0 + slopes / far * square))


def lengths_of_events(shape: np.ndarray) -> np.ndarray | None:
    """Lengths of the queries where values are counts of events, else None.

    A kernel that gets None is compiled without what only counts of events need, in a sixth less time.
    """
    return shape[QUERIES:TOP_UNIT] if shape[EVENTS] else None


@kernel
def fill_shares(shape: np.ndarray) -> None:
    """Fill in the factors of a choice, and over how much accounts are settled.

    The lengths of queries, whether they are a focus, and the bounds of the exponent are there.
    """
    for k in range(int(shape[MOST]) + 1):
        least = np.inf
        for up in range(CATCH_UP, (MAX_CATCH_UP if shape[FOCUSED] else CATCH_UP) + 1):
            strays = 1.0
            for c in range(CLASSES):
                strays *= late_share(shape[QUERIES + c] / LENGTHS[k], 0.5**up)
            if strays < least:
                least, shape[CATCH_UPS + k] = strays, up
        # Noise and the closing error enter published values while the next block catches up: this part of a block.
        share = 0.5 ** shape[CATCH_UPS + k]
        for c in range(CLASSES):
            ratio, at = shape[QUERIES + c] / LENGTHS[k], SHARES + (k * CLASSES + c) * FACTORS
            shape[at + OWN] = noise_of_query(ratio)
            shape[at + PUBLISHED] = share * noise_of_query(ratio / share)
            shape[at + LATE] = late_share(ratio, share)
            shape[at + HIDDEN] = hidden_share(ratio)


@kernel
def choose_exponent(white: float, drift: float, seen: int, shape: np.ndarray) -> int:
    """The k for which blocks of 2^k values have the least product of errors: classes of queries, both answers.

    With a focus the error of revised answers counts twice.

    Parameters
    ----------
    white, drift : float
        The signal, in squared thresholds.
    seen : int
        The finest scale at which it was seen.
    shape : float64[SHAPE]
        Noise, lengths of queries and bounds.
    """
    noise, least, most = shape[NOISE], int(shape[LEAST]), int(shape[MOST])
    errors = few_zeros(CLASSES)
    at_seen = BY_WHITE[seen] * white + BY_DRIFT[seen] * drift
    independent = MAX_WHITE if white > MAX_WHITE else white
    structure = at_seen - BY_WHITE[seen] * independent
    best, best_product = least, np.inf
    for k in range(most + 1):
        if k < seen:
            by_white, by_drift = BY_WHITE[k] * independent, structure * FALLS[seen - k]
        else:
            by_white, by_drift = BY_WHITE[k] * white, BY_DRIFT[k] * drift
        if k >= least:
            product, floor, closing = 1.0, 1.0, closing_error(by_white, by_drift, noise) / noise
            for c in range(CLASSES):
                at, hidden = SHARES + (k * CLASSES + c) * FACTORS, errors[c] / noise
                late = closing * shape[at + LATE] + shape[at + PUBLISHED]
                product *= (hidden + shape[at + OWN]) * (hidden + late)
                floor *= hidden * hidden
                if shape[FOCUSED]:
                    product *= hidden + shape[at + OWN]
                    floor *= hidden
            if product < best_product:
                best, best_product = k, product
            if floor >= best_product:
                # Longer blocks hide no less.
                break
        for c in range(CLASSES):
            errors[c] += (by_white + by_drift) * shape[SHARES + (k * CLASSES + c) * FACTORS + HIDDEN]
    return best


@inline
def fit_signal(memory: np.ndarray, shape: np.ndarray) -> tuple[float, float]:
    """Fit h_k = white * 2 * 2^k + drift * (2/3) * 8^k to the energies seen: weighted least squares, neither negative.

    Parameters
    ----------
    memory : float64[MEMORY]
        The energies.
    shape : float64[SHAPE]
        Noise and prior.

    Returns
    -------
    (float, float)
        White and drift.
    """
    noise, first = shape[NOISE], int(shape[FIRST])
    expected = shape[PRIOR_WHITE] * BY_WHITE[first] + shape[PRIOR_DRIFT] * BY_DRIFT[first]
    white, drift = shape[PRIOR_WHITE], shape[PRIOR_DRIFT]
    for _ in range(3):
        ww = wd = dd = w = d = 0.0
        for k in range(SCALES):
            count, energy, noises = memory[COUNTS + k], memory[ENERGIES + k], memory[NOISES + k]
            by_white, by_drift = BY_WHITE[k], BY_DRIFT[k]
            if k == first:
                energy = (energy * count + expected * PRIOR_COUNT) / (count + PRIOR_COUNT)
                noises = (noises * count + 2.0 * PRIOR_COUNT) / (count + PRIOR_COUNT)
                count += PRIOR_COUNT
            if count > 0.0:
                # A squared difference spreads as its mean does.
                spread = by_white * white + by_drift * drift + noises * noise
                weight = count / (spread * spread)
                ww += weight * by_white * by_white
                wd += weight * by_white * by_drift
                dd += weight * by_drift * by_drift
                w += weight * by_white * energy
                d += weight * by_drift * energy
        determinant = ww * dd - wd * wd
        white = drift = -1.0
        if determinant > 1e-9 * ww * dd:
            white = (w * dd - d * wd) / determinant
            drift = (d * ww - w * wd) / determinant
        if white < 0.0 or drift < 0.0:
            w = 0.0 if w < 0.0 else w
            d = 0.0 if d < 0.0 else d
            # One scale alone cannot tell them apart: white then, whatever the rounding.
            if w * w / ww >= d * d / dd * (1.0 - 1e-9):
                white, drift = w / ww, 0.0
            else:
                white, drift = 0.0, d / dd
    return white, drift


@inline
def record_difference(memory: np.ndarray, total: float, exponent: int, noise: float, noises: float) -> None:
    """Compare a released sum with its neighbours, scale by scale.

    Parameters
    ----------
    memory : float64[MEMORY]
        Changed in place; POSITION is where the block begins.
    total : float
        The released sum, in thresholds.
    exponent : int
        The block has 2^exponent values.
    noise, noises : float
        Variance of a block's noise under the first threshold, and how many such noises are in the sum.
    """
    for k in range(SCALES):
        memory[COUNTS + k] *= FORGET
    begin, end = memory[POSITION], memory[POSITION] + LENGTHS[exponent]
    for k in range(exponent, SCALES):
        before, waiting = memory[PENDING + k], memory[PENDING_NOISES + k]
        if waiting == 0.0 or memory[PENDING_ENDS + k] != begin:
            memory[PENDING + k], memory[PENDING_NOISES + k], memory[PENDING_ENDS + k] = total, noises, end
            break
        difference = total - before
        noises += waiting
        count = memory[COUNTS + k] + 1.0
        memory[COUNTS + k] = count
        gain = 1.0 / count
        energy, usual = memory[ENERGIES + k], memory[NOISES + k]
        memory[ENERGIES + k] = energy + gain * (difference * difference - noises * noise - energy)
        memory[NOISES + k] = usual + gain * (noises - usual)
        total += before
        begin -= LENGTHS[k]
        memory[PENDING_NOISES + k] = 0.0


@inline
def close_block(memory: np.ndarray, total: float, shape: np.ndarray, lengths: np.ndarray | None) -> None:
    """Take in a block's released sum; choose the length of the next block and what its values are published as.

    Parameters
    ----------
    memory : float64[MEMORY]
        Changed in place.
    total : float
        The released sum, in thresholds.
    shape : float64[SHAPE]
        Public parameters.
    lengths : float64[5] or None
        What :func:`lengths_of_events` says of them.
    """
    exponent = int(memory[EXPONENT])
    # Sums are in units of the first threshold, so a noise under a higher one counts as several.
    noises = memory[UNIT] * memory[UNIT]
    length, noise = LENGTHS[exponent], shape[NOISE] * noises
    record_difference(memory, total, exponent, shape[NOISE], noises)
    first_block = memory[POSITION] == 0.0
    memory[POSITION] += length
    # Blocks come in pairs of one length: a single one would show no difference, and nothing would be learned.
    paired = memory[PENDING_NOISES + exponent] == 0.0
    events = shape[EVENTS] != 0.0
    chooses = paired and (events or length >= CADENCE or memory[POSITION] - memory[DECIDED] >= CADENCE)
    if chooses:
        memory[WHITE], memory[DRIFT] = fit_signal(memory, shape)
    if not first_block:
        # Between the middles of two blocks the level moves.
        memory[VARIANCE] += memory[DRIFT] * (length + LENGTHS[int(memory[LAST])]) / 2.0
    memory[BEFORE] = memory[VARIANCE]
    inverse = INVERSES[exponent]
    gain = memory[VARIANCE] / (memory[VARIANCE] + memory[WHITE] * inverse + noise * (inverse * inverse))
    memory[LEVEL] += gain * (total * inverse - memory[LEVEL])
    memory[VARIANCE] *= 1.0 - gain
    memory[LAST] = memory[EXPONENT]
    if chooses:
        memory[DECIDED] = memory[POSITION]
        if lengths is not None:
            chosen = choose_event_exponent(
                memory[WHITE],
                memory[DRIFT],
                memory[COUNTS : COUNTS + SCALES],
                memory[ENERGIES : ENERGIES + SCALES],
                memory[NOISES : NOISES + SCALES],
                memory[LEVEL],
                noise,
                lengths,
                int(shape[MOST]),
            )
        else:
            seen = 0
            while seen < exponent and memory[COUNTS + seen] < SEEN:
                seen += 1
            chosen = choose_exponent(memory[WHITE] / noises, memory[DRIFT] / noises, seen, shape)
        memory[EXPONENT] = chosen if chosen <= exponent else exponent + 1
    fit_exponent(memory, shape)
    # A single count is published with its own noise, at once.
    usual = total if events and exponent == 0 else length * memory[PREDICTION]
    published = usual + memory[CATCH] * memory[EXTRA]
    # Up to the limit nothing is published, and there is nothing to make up for.
    open_account = memory[CARRY] + total - published if memory[POSITION] > shape[LIMIT] else 0.0
    memory[CARRY] = shape[SPREADS] * open_account
    if memory[REFERENCE] >= 0.0:
        follow_growth(memory, total, length, noises, shape)
    predict(memory, shape)


@inline
def follow_growth(memory: np.ndarray, total: float, length: float, noises: float, shape: np.ndarray) -> None:
    """Let the threshold follow the mean of a value, in spans of as many values as the hold-out released, or more."""
    memory[SPAN] += length
    memory[SPAN_TOTAL] += total
    memory[SPAN_NOISES] += noises
    if memory[POSITION] < shape[LIMIT] or memory[SPAN] * EARLY < shape[LIMIT]:
        return
    mean = memory[SPAN_TOTAL] / memory[SPAN]
    deviation = np.sqrt(shape[NOISE] * memory[SPAN_NOISES]) / memory[SPAN]
    unit, usual, certain = memory[UNIT], memory[REFERENCE], mean - CERTAIN * deviation
    full = memory[SPAN] >= shape[LIMIT] and CERTAIN * deviation <= KNOWN * unit
    cut_off = usual > 0.0 and certain > max(CUT_OFF, 0.5 + 0.5 * usual) * unit
    if not (full or cut_off):
        return
    memory[SPAN] = memory[SPAN_TOTAL] = memory[SPAN_NOISES] = 0.0
    if usual == 0.0:
        taken = max(mean + MARGIN * deviation, MIN_REFERENCE)
        memory[REFERENCE] = taken if taken <= CUT_OFF else EMPTY_REFERENCE
        return
    before, memory[CUT_MEAN] = memory[CUT_MEAN], 0.0
    # Above the bound it would count noise that sums do not have.
    top = shape[TOP_UNIT] if shape[TOP_UNIT] > 0.0 else np.inf
    swings = memory[HIGHEST] <= MAX_SWING
    returned = swings and memory[HIGHEST] > unit == 1.0
    if before > 0.0 and mean < USELESS * before:
        # Values are about as large as the first threshold.
        memory[UNIT], memory[REFERENCE], memory[JUMP] = 1.0, before, 0.0
    elif cut_off:
        # How far growth went cannot be seen: what is too far is taken back.
        factor = RISE_BY
        while certain > usual * unit * factor:
            factor *= RISE_BY
        memory[JUMP] = min(max(memory[JUMP] * memory[JUMP], factor), MAX_JUMP)
        memory[UNIT] = min(unit * memory[JUMP], top)
    elif certain > (MAX_SWING if returned else MAX_RISE) * usual * unit:
        while memory[UNIT] < top and certain > MAX_RISE * usual * memory[UNIT]:
            memory[UNIT] = min(memory[UNIT] * RISE_BY, top)
        memory[JUMP] = np.sqrt(memory[JUMP])
    elif memory[JUMP] > 0.0 or swings:
        while memory[UNIT] > 1.0 and (mean + MARGIN * deviation) * RISE_BY < usual * memory[UNIT]:
            memory[UNIT] = max(memory[UNIT] / RISE_BY, 1.0)
        if memory[UNIT] == unit:
            memory[JUMP] = np.sqrt(memory[JUMP]) if memory[JUMP] > RISE_BY * RISE_BY else 0.0
    memory[HIGHEST] = max(memory[HIGHEST], memory[UNIT])
    if memory[UNIT] > unit:
        if unit == 1.0 and usual == EMPTY_REFERENCE:
            memory[CUT_MEAN] = mean
        # It may have to rise again: blocks of a span at most, so that the next one is seen when it is over.
        while LENGTHS[int(memory[EXPONENT])] > shape[LIMIT] and memory[EXPONENT] > shape[LEAST]:
            memory[EXPONENT] -= 1.0


@inline
def fit_exponent(memory: np.ndarray, shape: np.ndarray) -> None:
    """Shorten the next block until it ends where blocks must end once."""
    position, limit = memory[POSITION], shape[LIMIT]
    if position < limit:
        exponent = memory[EXPONENT]
        while position + LENGTHS[int(exponent)] > limit:
            exponent -= 1.0
        memory[EXPONENT] = exponent


@inline
def predict(memory: np.ndarray, shape: np.ndarray) -> None:
    """What values of the open block are published as: the level, and at first what the block before left open."""
    level, unit, exponent = memory[LEVEL], memory[UNIT], memory[EXPONENT]
    if shape[EVENTS] == 0.0:
        level = 0.0 if level < 0.0 else level
        level = unit if unit < level else level
    memory[PREDICTION] = level
    longer = memory[LAST] if memory[LAST] > exponent else exponent
    up = shape[CATCH_UPS + int(longer)]
    latest = longer - up if longer > up else 0.0
    catch = int(latest if latest < exponent else exponent)
    memory[CATCH] = LENGTHS[catch]
    memory[EXTRA] = shape[SPREADS] * memory[CARRY] * INVERSES[catch]


@kernel
def start_memory(
    level: float, variance: float, exponent: int, rises: bool, shape: np.ndarray, memory: np.ndarray
) -> None:
    """Before the first block.

    Parameters
    ----------
    level, variance : float
        The mean of a value and how little is known of it, in thresholds.
    exponent : int
        The first block has 2^exponent values, or fewer if it must end before.
    rises : bool
        Whether the threshold follows a stream that outgrows the hold-out's blocks.
    shape : float64[SHAPE]
        Public parameters.
    memory : float64[MEMORY]
        Receives the start.
    """
    memory[:] = 0.0
    memory[LEVEL], memory[VARIANCE] = level, variance
    memory[WHITE], memory[DRIFT] = shape[PRIOR_WHITE], shape[PRIOR_DRIFT]
    memory[EXPONENT] = exponent
    memory[UNIT], memory[HIGHEST], memory[REFERENCE] = 1.0, 1.0, 0.0 if rises else -1.0
    fit_exponent(memory, shape)
    predict(memory, shape)
