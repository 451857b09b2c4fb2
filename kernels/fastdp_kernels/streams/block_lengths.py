"""Length of the next block, from released sums (post-processing; ``docs/streams_proofs.md``).

The squared difference of neighbouring sums of 2^k values has the mean h_k + 2 nu, nu the variance of a block's noise;
h_k, the energy at scale k, is hidden by a block of 2^(k+1) values.
"""

from __future__ import annotations

import numpy as np

from fastdp_kernels._jit import Record, few_zeros, inline, kernel, records

SCALES = 40
#: Four classes of query length share the attention; five where values are counts of events.
CLASSES, EVENT_CLASSES = 4, 5
#: State of the control distribution: of differences of sums, by scale, then single numbers.
MEMORY = records(
    [
        ("counts", np.float64, SCALES),  # differences seen, fading
        ("energies", np.float64, SCALES),  # mean of their squares less noise
        ("noises", np.float64, SCALES),  # mean number of noises in them
        ("pending", np.float64, SCALES),  # sum of the last block that has no partner yet
        ("pending_noises", np.float64, SCALES),  # noises in it
        ("pending_ends", np.float64, SCALES),  # where it ends
        ("position", np.float64),  # values in closed blocks
        ("decided", np.float64),  # where the last choice was made
        ("exponent", np.float64),  # of the open block's length
        ("last", np.float64),  # of the last closed block's
        ("white", np.float64),  # the signal: variance a value of what is independent between blocks,
        ("drift", np.float64),  # and by which the level moves a value
        ("level", np.float64),  # a value's mean
        ("variance", np.float64),  # of the level
        ("carry", np.float64),  # released less published so far
        ("prediction", np.float64),  # published for a value of the open block,
        ("extra", np.float64),  # and, for the first of them, a part of what is open
        ("before", np.float64),  # the level's variance before the last sum
        ("catch", np.float64),  # how many values make up for what is open
        ("unit", np.float64),  # the threshold in use, in units of the first one
        ("reference", np.float64),  # mean of a value in the hold-out's blocks; -1 where the threshold stays
        ("span", np.float64),  # values since the threshold was last asked about,
        ("span_total", np.float64),  # their sum,
        ("span_noises", np.float64),  # and noises in it
        ("jump", np.float64),  # while the threshold jumps: the last factor; else 0
        ("cut_mean", np.float64),  # the mean before the first rise, or 0
        ("highest", np.float64),  # the highest threshold so far
        ("group", np.float64),  # values of the open group; 0: none is open
        ("members", np.float64),  # blocks closed in it,
        ("group_total", np.float64),  # and their released sums
        ("debt", np.float64),  # part missing by the last group's sum, less the part published of it
    ]
)
#: Public parameters.
SHAPE = records(
    [
        ("noise", np.float64),  # variance of a block's noise
        ("prior_white", np.float64),  # the prior signal
        ("prior_drift", np.float64),
        ("least", np.float64),  # bounds of the exponent
        ("most", np.float64),
        ("first", np.float64),  # the scale of the prior
        ("limit", np.float64),  # where blocks must end once; 0: nowhere
        ("events", np.float64),  # 1 if values are counts of events without a bound, or 0
        ("queries", np.float64, EVENT_CLASSES),  # lengths of the queries that count
        ("top_unit", np.float64),  # the largest threshold, in units of the first one; 0: no limit
        ("group", np.float64),  # values of a group at least; 0: there are none
        ("focused", np.float64),  # 1 if the queries are a focus, and values no counts of events, or 0
        ("catch_ups", np.float64, SCALES),  # an account is settled over 2^-u times a block of 2^k values
        # Factors of a choice that depend on lengths alone (:func:`fill_shares`), so that a choice divides little:
        ("own", np.float64, (SCALES, CLASSES)),  # a block's noise in revised values,
        ("published", np.float64, (SCALES, CLASSES)),  # and in published ones,
        ("late", np.float64, (SCALES, CLASSES)),  # the closing error,
        ("hidden", np.float64, (SCALES, CLASSES)),  # and the energy
    ]
)

#: Blocks shorter than this many values share a choice.
CADENCE = 512.0
#: The sum that a block left open is spread over 2^-CATCH_UP times as many values as it or the next block has,
#: whichever is longer, or by all of the next; with a focus, over the number that errs least in it, down to
#: 2^-MAX_CATCH_UP times.
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
#: The threshold rises by RISE_BY while the mean of a value, less CERTAIN standard deviations of its noise, is more
#: than MAX_RISE times the hold-out's, which is taken MARGIN deviations too large, and at least MIN_REFERENCE.
MAX_RISE = 1.5
RISE_BY = 1.25
CERTAIN = 4.0
MARGIN = 2.0
MIN_REFERENCE = 0.07
#: Up to this many first thresholds a rise may be a swing, as of a day: the threshold falls back with the mean.  From
#: the first one it then rises again only where the mean is more than so many times the hold-out's.
MAX_SWING = 2.0
#: A mean is known where CERTAIN deviations are at most this part of the threshold.
KNOWN = 0.25
#: Where the mean is above CUT_OFF thresholds, and nearer to the threshold than to the hold-out's mean, the threshold
#: jumps until the ratio is the old one, by the square of the last factor if it just did so, at most MAX_JUMP; this is
#: tested after 1 / EARLY of a span.
CUT_OFF = 0.75
MAX_JUMP = 64.0
EARLY = 8.0
#: Assumed mean of a hold-out where it was above CUT_OFF; and if the first rise does not make it USELESS
#: times as large, nothing was cut off.
EMPTY_REFERENCE = 0.15
USELESS = 1.25


#: A group has at least MEMBERS blocks, and at most WIDER times the least number of values.  Its blocks' noise has
#: LOUDER times the usual scale, its sum's GROUP_SCALE times: shares of epsilon of 1 / LOUDER and 1 / GROUP_SCALE.
MEMBERS, WIDER = 64.0, 2.0
LOUDER, GROUP_SCALE = 1.2, 6.0
#: The part missing by a group's sum is published over about 1 / REPAID of the least group.
REPAID = 1.0

#: 2^k; energies at scale k of independent values of variance 1 (two sums of 2^k values), and of a level that moves by
#: variance 1 a value (E[(S_1 - S_2)^2] = (2/3) g^3).
LENGTHS = 2.0 ** np.arange(SCALES)
INVERSES = 1.0 / LENGTHS
BY_WHITE = 2.0 * LENGTHS
BY_DRIFT = 2.0 / 3.0 * LENGTHS**3
#: Rest of a scale's structure so many scales below it.
FALLS = FALL ** -np.arange(SCALES)


@inline
def noise_of_query(ratio: float) -> float:
    """Noise of a range of ``ratio`` flat blocks, in a block's variances."""
    return ratio - 1.0 / 3.0 if ratio >= 1.0 else ratio * ratio * (1.0 - ratio / 3.0)


@inline
def closing_error(by_white: float, by_drift: float, noise: float) -> float:
    """Variance of a block's sum about its filter's steady prediction."""
    q, r = 1.5 * by_drift, 0.5 * by_white + noise
    p = 0.5 * (q + np.sqrt(q * (q + 4.0 * r)))
    return float(p + 0.5 * by_white)


@inline
def late_share(ratio: float, share: float) -> float:
    """Share of the closing error in a query of ``ratio`` blocks; ``share`` of the next one repays it."""
    square = ratio * ratio
    slopes, far = 1.0 + 1.0 / share, 2.0 / 3.0 * (1.0 + share)
    return float(slopes * square / (1.0 + slopes / far * square))


def lengths_of_events(shape: Record) -> np.ndarray | None:
    """Query lengths where values are counts of events; None compiles faster."""
    return shape["queries"][0] if shape["events"][0] else None


@kernel
def fill_shares(shape: Record) -> int:
    """Fill the factors of a choice, and the closing's share; returns the choice for the prior signal."""
    shape = shape[0]
    for k in range(int(shape.most) + 1):
        least = np.inf
        for up in range(CATCH_UP, (MAX_CATCH_UP if shape.focused else CATCH_UP) + 1):
            strays = 1.0
            for c in range(CLASSES):
                strays *= late_share(shape.queries[c] / LENGTHS[k], 0.5**up)
            if strays < least:
                least, shape.catch_ups[k] = strays, up
        # Noise and the closing error enter published values while the next block catches up: this part of a block.
        share = 0.5 ** shape.catch_ups[k]
        for c in range(CLASSES):
            ratio = shape.queries[c] / LENGTHS[k]
            shape.own[k, c] = noise_of_query(ratio)
            shape.published[k, c] = share * noise_of_query(ratio / share)
            shape.late[k, c] = late_share(ratio, share)
            # Share of a scale's energy in the error of a query of so many times 2^k values.
            square = ratio * ratio
            shape.hidden[k, c] = 0.25 * square / (1.0 + 1.5 * square)
    return choose_exponent(shape.prior_white, shape.prior_drift, 0, shape)


@inline
def choose_exponent(white: float, drift: float, seen: int, shape: Record) -> int:
    """The k for which blocks of 2^k values have the least product of errors (query classes, both answers).

    ``white``, ``drift``: the signal, in squared thresholds, as seen from scale ``seen`` on.
    """
    noise, least, most = shape.noise, int(shape.least), int(shape.most)
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
                hidden = errors[c] / noise
                late = closing * shape.late[k, c] + shape.published[k, c]
                product *= (hidden + shape.own[k, c]) * (hidden + late)
                floor *= hidden * hidden
                if shape.focused:
                    product *= hidden + shape.own[k, c]
                    floor *= hidden
            if product < best_product:
                best, best_product = k, product
            if floor >= best_product:
                # Longer blocks hide no less.
                break
        for c in range(CLASSES):
            errors[c] += (by_white + by_drift) * shape.hidden[k, c]
    return best


# Counts of events: blocks of one value are a choice like others.
#
# Values have no bound, so nothing limits the variance of independent ones but the level: independent events that
# move a value by one step each have a Poisson variance, their mean.  Variance beyond it is structure within
# blocks.  Queries may span one value, and noise and hidden energy are those of whole positions, because a query of
# one value is no limit of long ones.  The errors of two answers are weighed: revised answers, and published values,
# which follow a block late.

#: Squared relative error of the two-parameter fit.
MISFIT = 1.0
#: Published values are predictions from the block before: at its end a running sum is off by the difference of two
#: blocks, twice the height of a hat whose halves are such blocks.
LAG = 4.0


@inline
def noise_of_count(length: float, block: float) -> float:
    """Noise of a query of ``length`` values, in a block's variances."""
    ratio = length / block
    if ratio >= 1.0:
        return ratio - 1.0 / 3.0 + 1.0 / (3.0 * block * block)
    return ratio * ratio * (1.0 - ratio / 3.0) + ratio / (3.0 * block * block)


@inline
def hidden_share_of_count(length: float, half: float) -> float:
    """Share of the energy of halves in the error of a query of ``length``."""
    square, least = (length / half) ** 2, 1.0 / (half * half)
    return 0.25 * square / (1.0 + (square - least) / (2.0 / 3.0 + least / 3.0))


@inline
def choose_event_exponent(memory: Record, noise: float, lengths: np.ndarray, most: int) -> int:
    """:func:`choose_exponent`, up to ``most``, for counts of events and their query ``lengths``."""
    errors, most_white = few_zeros(EVENT_CLASSES), max(memory.level, 0.0)
    independent = memory.white if memory.white < most_white else most_white
    seen = 0
    while seen < most and memory.counts[seen] < SEEN:
        seen += 1
    structure = 0.0
    best, best_product = 0, np.inf
    for k in range(most + 1):
        block = 2.0**k
        if k < seen:
            if k == 0:
                at_seen = energy_at(seen, memory, noise)
                structure = max(at_seen - 2.0 ** (seen + 1.0) * independent, 0.0)
            energy = float(2.0 * block * independent + structure * FALL ** np.float64(k - seen))
        else:
            energy = energy_at(k, memory, noise)
        product = 1.0
        for c in range(EVENT_CLASSES):
            length = lengths[c]
            own = noise_of_count(length, block)
            met = energy * hidden_share_of_count(length, block)
            # Single counts are published without a lag.
            late = LAG * met if k else 0.0
            product *= (errors[c] / noise + own) * ((errors[c] + late) / noise + own)
            errors[c] += met
        if product < best_product:
            best, best_product = k, product
    return best


@inline
def energy_at(k: int, memory: Record, noise: float) -> float:
    """Energy at a scale: between fit and measurement."""
    fitted = 2.0 ** (k + 1.0) * memory.white + 2.0 / 3.0 * 8.0**k * memory.drift
    if memory.counts[k] < SEEN:
        return float(fitted)
    spread = fitted + memory.noises[k] * noise
    weight = MISFIT * fitted * fitted / (MISFIT * fitted * fitted + 2.0 * spread * spread / memory.counts[k])
    return float(max(fitted + weight * (memory.energies[k] - fitted), 0.0))


# The signal, seen in differences of sums.


@inline
def fit_signal(memory: Record, shape: Record) -> tuple[float, float]:
    """White and drift in h_k = white * 2 * 2^k + drift * (2/3) * 8^k, by weighted least squares."""
    noise, first = shape.noise, int(shape.first)
    expected = shape.prior_white * BY_WHITE[first] + shape.prior_drift * BY_DRIFT[first]
    white, drift = shape.prior_white, shape.prior_drift
    for _ in range(3):
        ww = wd = dd = w = d = 0.0
        for k in range(SCALES):
            count, energy, noises = memory.counts[k], memory.energies[k], memory.noises[k]
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
def record_difference(memory: Record, total: float, exponent: int, noise: float, noises: float) -> None:
    """Compare the released sum of 2^exponent values, in thresholds, with its neighbours, scale by scale.

    ``noise``: variance under the first threshold, of which the sum has ``noises``.
    """
    for k in range(SCALES):
        memory.counts[k] *= FORGET
    begin, end = memory.position, memory.position + LENGTHS[exponent]
    for k in range(exponent, SCALES):
        before, waiting = memory.pending[k], memory.pending_noises[k]
        if waiting == 0.0 or memory.pending_ends[k] != begin:
            memory.pending[k], memory.pending_noises[k], memory.pending_ends[k] = total, noises, end
            break
        difference = total - before
        noises += waiting
        count = memory.counts[k] + 1.0
        memory.counts[k] = count
        gain = 1.0 / count
        energy, usual = memory.energies[k], memory.noises[k]
        memory.energies[k] = energy + gain * (difference * difference - noises * noise - energy)
        memory.noises[k] = usual + gain * (noises - usual)
        total += before
        begin -= LENGTHS[k]
        memory.pending_noises[k] = 0.0


@inline
def close_block(memory: Record, total: float, shape: Record, lengths: np.ndarray | None) -> None:
    """Take in a block's released sum, in thresholds; choose the next block."""
    exponent = int(memory.exponent)
    # Sums are in units of the first threshold, so a noise under a higher one counts as several.
    quiet = memory.unit * memory.unit
    noises = quiet * LOUDER * LOUDER if memory.group else quiet
    length, noise = LENGTHS[exponent], shape.noise * noises
    record_difference(memory, total, exponent, shape.noise, noises)
    first_block = memory.position == 0.0
    memory.position += length
    # Blocks come in pairs of one length: a single one would show no difference, and nothing would be learned.
    paired = memory.pending_noises[exponent] == 0.0
    events = shape.events != 0.0
    chooses = paired and (events or length >= CADENCE or memory.position - memory.decided >= CADENCE)
    if chooses:
        memory.white, memory.drift = fit_signal(memory, shape)
    if not first_block:
        # Between the middles of two blocks the level moves.
        memory.variance += memory.drift * (length + LENGTHS[int(memory.last)]) / 2.0
    memory.before = memory.variance
    inverse = INVERSES[exponent]
    gain = memory.variance / (memory.variance + memory.white * inverse + noise * (inverse * inverse))
    memory.level += gain * (total * inverse - memory.level)
    memory.variance *= 1.0 - gain
    memory.last = memory.exponent
    if chooses:
        memory.decided = memory.position
        if lengths is not None:
            chosen = choose_event_exponent(memory, noise, lengths, int(shape.most))
        else:
            seen = 0
            while seen < exponent and memory.counts[seen] < SEEN:
                seen += 1
            chosen = choose_exponent(memory.white / quiet, memory.drift / quiet, seen, shape)
        memory.exponent = chosen if chosen <= exponent else exponent + 1
    fit_exponent(memory, shape)
    # A single count is published with its own noise, at once.
    usual = total if events and exponent == 0 else length * memory.prediction
    paid = repaid(memory, length, shape)
    published = usual + memory.catch * memory.extra - paid
    memory.debt -= paid
    # Up to the limit nothing is published, and there is nothing to make up for.
    open_account = memory.carry + total - published if memory.position > shape.limit else 0.0
    memory.carry = open_account
    if memory.reference >= 0.0:
        follow_growth(memory, total, length, noises, shape)
    predict(memory, shape)


@inline
def repaid(memory: Record, length: float, shape: Record) -> float:
    """Part of the debt that a block of ``length`` values repays."""
    if memory.debt == 0.0 or (shape.events != 0.0 and length == 1.0):
        return 0.0
    share = REPAID * length / shape.group
    return float(memory.debt if share > 1.0 else share * memory.debt)


# Groups: blocks between two places that are fixed, whose sum is released again, with a part of epsilon.


@inline
def open_group(memory: Record, shape: Record) -> None:
    """Open a group where the last block was short."""
    size = max(shape.group, MEMBERS * LENGTHS[int(memory.last)])
    memory.members = memory.group_total = 0.0
    opens = memory.position >= shape.limit and memory.position % size == 0.0 and size <= WIDER * shape.group
    memory.group = size if opens else 0.0


@inline
def follow_group(memory: Record, total: float, rose: bool, shape: Record) -> bool:
    """Count a closed block in its group; True where the group ends.

    Without a group, or where the threshold changes, open one.
    """
    if memory.group == 0.0 or rose:
        open_group(memory, shape)
        return False
    memory.members += 1.0
    memory.group_total += total
    return bool(memory.position % memory.group == 0.0)


@kernel
def end_group(memory: Record, total: float, shape: Record) -> None:
    """:func:`take_group` for MEMORY[1], SHAPE[1]."""
    take_group(memory[0], total, shape[0])


@inline
def take_group(memory: Record, total: float, shape: Record) -> None:
    """Take in a group's released sum, weighed against its blocks' by their variances."""
    own = memory.members * LOUDER * LOUDER
    missing = (total - memory.group_total) * own / (own + GROUP_SCALE * GROUP_SCALE)
    memory.debt += missing
    open_group(memory, shape)
    predict(memory, shape)


@inline
def follow_growth(memory: Record, total: float, length: float, noises: float, shape: Record) -> None:
    """Let the threshold follow the mean of a value, in spans of the hold-out's released values."""
    memory.span += length
    memory.span_total += total
    memory.span_noises += noises
    if memory.position < shape.limit or memory.span * EARLY < shape.limit:
        return
    mean = memory.span_total / memory.span
    deviation = np.sqrt(shape.noise * memory.span_noises) / memory.span
    unit, usual, certain = memory.unit, memory.reference, mean - CERTAIN * deviation
    full = memory.span >= shape.limit and CERTAIN * deviation <= KNOWN * unit
    cut_off = usual > 0.0 and certain > max(CUT_OFF, 0.5 + 0.5 * usual) * unit
    if not (full or cut_off):
        return
    memory.span = memory.span_total = memory.span_noises = 0.0
    if usual == 0.0:
        taken = max(mean + MARGIN * deviation, MIN_REFERENCE)
        memory.reference = taken if taken <= CUT_OFF else EMPTY_REFERENCE
        return
    before, memory.cut_mean = memory.cut_mean, 0.0
    # Above the bound it would count noise that sums do not have.
    top = shape.top_unit if shape.top_unit > 0.0 else np.inf
    swings = memory.highest <= MAX_SWING
    returned = swings and memory.highest > unit == 1.0
    if before > 0.0 and mean < USELESS * before:
        # Values are about as large as the first threshold.
        memory.unit, memory.reference, memory.jump = 1.0, before, 0.0
    elif cut_off:
        # How far growth went cannot be seen: what is too far is taken back.
        factor = RISE_BY
        while certain > usual * unit * factor:
            factor *= RISE_BY
        jump = max(memory.jump * memory.jump, factor)
        memory.jump = jump if jump < MAX_JUMP else MAX_JUMP
        memory.unit = unit * memory.jump
    elif certain > (MAX_SWING if returned else MAX_RISE) * usual * unit:
        while memory.unit < top and certain > MAX_RISE * usual * memory.unit:
            memory.unit *= RISE_BY
        memory.jump = np.sqrt(memory.jump)
    elif memory.jump > 0.0 or swings:
        while memory.unit > 1.0 and (mean + MARGIN * deviation) * RISE_BY < usual * memory.unit:
            memory.unit = max(memory.unit / RISE_BY, 1.0)
        if memory.unit == unit:
            memory.jump = np.sqrt(memory.jump) if memory.jump > RISE_BY * RISE_BY else 0.0
    memory.unit = memory.unit if memory.unit < top else top
    memory.highest = max(memory.highest, memory.unit)
    if memory.unit > unit:
        if unit == 1.0 and usual == EMPTY_REFERENCE:
            memory.cut_mean = mean
        # It may have to rise again: blocks of a span at most, so that the next one is seen when it is over.
        while LENGTHS[int(memory.exponent)] > shape.limit and memory.exponent > shape.least:
            memory.exponent -= 1.0


@inline
def fit_exponent(memory: Record, shape: Record) -> None:
    """Shorten the next block to a fixed end."""
    position, limit = memory.position, shape.limit
    if position < limit:
        exponent = memory.exponent
        while position + LENGTHS[int(exponent)] > limit:
            exponent -= 1.0
        memory.exponent = exponent


@inline
def predict(memory: Record, shape: Record) -> None:
    """Predict the open block: the level, and at first a correction."""
    level, unit, exponent = memory.level, memory.unit, memory.exponent
    if shape.events == 0.0:
        level = 0.0 if level < 0.0 else level
        level = unit if unit < level else level
    length = LENGTHS[int(exponent)]
    memory.prediction = level if memory.debt == 0.0 else level + repaid(memory, length, shape) / length
    longer = memory.last if memory.last > exponent else exponent
    up = shape.catch_ups[int(longer)]
    latest = longer - up if longer > up else 0.0
    catch = int(latest if latest < exponent else exponent)
    memory.catch = LENGTHS[catch]
    memory.extra = memory.carry * INVERSES[catch]


@kernel
def start_memory(level: float, variance: float, exponent: int, rises: bool, shape: Record, memory: Record) -> None:
    """Fill in the memory before the first block, of at most 2^exponent values.

    ``level``, ``variance``: mean of a value and its uncertainty, in thresholds; ``rises``: the threshold may rise.
    """
    memory, shape = memory[0], shape[0]
    memory.level, memory.variance = level, variance
    memory.white, memory.drift = shape.prior_white, shape.prior_drift
    memory.exponent = exponent
    memory.unit, memory.highest, memory.reference = 1.0, 1.0, 0.0 if rises else -1.0
    fit_exponent(memory, shape)
    predict(memory, shape)
