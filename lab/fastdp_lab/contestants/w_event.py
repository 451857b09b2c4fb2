"""w-event level: epsilon protects any w consecutive values; answers are the last release at each step.

Kellaris, Papadopoulos, Xiao and Papadias 2014 (VLDB), "Differentially private event sequences over infinite streams":
each step spends part of epsilon, and any w consecutive steps spend at most epsilon.  Here a value is one number, and
budgets are whole numbers of parts, so that their sums are exact.  Before anything is released, 0 is known.

Proofs: a step's budgets for comparison and release follow from earlier outputs, so w values lose at most the sum over
w steps.  BD and BA (`distribution`, `absorption`) compare with epsilon / (2 w) a step, half in all.
"""

from __future__ import annotations

import math

import numpy as np

from fastdp.kinds import Floats, Integers
from fastdp_lab.contestants.budget import UNITS, compiled, draws, parts, steps_of
from fastdp_lab.contestants.event import adaptive, whole_array
from fastdp_lab.mechanism import Mechanism


def uniform(values: Integers, epsilon: float, key: bytes, *, sensitivity: float, w: int) -> Floats:
    """Each value with epsilon / w."""
    steps, unit = steps_of(values, sensitivity, parts(epsilon) // w)
    return (steps + draws(key, values.size)).astype(np.float64) * unit


def sample(values: Integers, epsilon: float, key: bytes, *, sensitivity: float, w: int) -> Floats:
    """Every w-th value with epsilon; the others are not looked at."""
    return np.repeat(uniform(values[::w], epsilon, key, sensitivity=sensitivity, w=1), w)[: values.size]


# Values far from the last release.


def distribution(values: Integers, epsilon: float, key: bytes, *, sensitivity: float, w: int) -> Floats:
    """Half of the budget that the window has left, for values far from the last release."""
    moved, noise = max(int(sensitivity), 1), draws(key, 2 * values.size)
    return _distribution(values, moved, parts(epsilon), w, noise)


@compiled
def _far(value: int, last: float, moved: int, budget: int, noise: int) -> float:
    """Noisy distance of a value from a known number, for `budget` parts."""
    known = np.int64(np.rint(last * budget / moved))
    return (abs(value * budget // moved - known) + noise) * (moved / budget)


@compiled
def _distribution(values: Integers, moved: int, total: int, w: int, noise: Integers) -> Floats:
    out, spent = np.empty(values.size), np.zeros(values.size, np.int64)
    testing, left, last = total // (2 * w), total // 2, 0.0
    for t in range(values.size):
        if t >= w:
            left += spent[t - w]
        given = left // 2
        if given and _far(values[t], last, moved, testing, noise[2 * t]) > moved * (UNITS / given):
            last = (values[t] * given // moved + noise[2 * t + 1]) * (moved / given)
            spent[t] = given
            left -= given
        out[t] = last
    return out


def absorption(values: Integers, epsilon: float, key: bytes, *, sensitivity: float, w: int) -> Floats:
    """The shares of the steps that went without, for values far from the last release.

    A release at step i absorbs a_i <= w shares of epsilon / (2 w), its own included; the a_i - 1 steps after it
    release nothing.  For releases i_1 < ... < i_m of one window a_k <= i_k - (i_(k-1) + a_(k-1) - 1); adding these,
    a_1 + ... + a_m <= i_m - i_1 + 1 <= w.
    """
    moved, noise = max(int(sensitivity), 1), draws(key, 2 * values.size)
    return _absorption(values, moved, parts(epsilon) // (2 * w), w, noise)


@compiled
def _absorption(values: Integers, moved: int, share: int, w: int, noise: Integers) -> Floats:
    out, last, blocked = np.empty(values.size), 0.0, 0
    for t in range(values.size):
        absorbed = min(t + 1 - blocked, w)
        given = share * absorbed
        if absorbed > 0 and _far(values[t], last, moved, share, noise[2 * t]) > moved * (UNITS / given):
            last = (values[t] * given // moved + noise[2 * t + 1]) * (moved / given)
            # As many steps as were absorbed, the present one among them, have no budget left.
            blocked = t + absorbed
        out[t] = last
    return out


def dsat(values: Integers, epsilon: float, key: bytes, *, sensitivity: float, w: int, rate: float = 0.15) -> Floats:
    """At most a share of each window's values, those beyond a noisy threshold that follows the rate."""
    total, most = parts(epsilon), math.ceil(rate * w)
    testing, giving = max(total * (w - most) // w // (2 * most), 1), total // w
    return _dsat(values, max(int(sensitivity), 1), testing, giving, w, most, draws(key, 2 * values.size + 1))


@compiled
def _dsat(values: Integers, moved: int, testing: int, giving: int, w: int, most: int, noise: Integers) -> Floats:
    out, shown = np.empty(values.size), np.zeros(values.size, np.int64)
    count, last, threshold = 0, 0.0, moved * (0.025 + noise[-1] / testing)
    for t in range(values.size):
        if t >= w:
            count -= shown[t - w]
        if count < most:
            error = count / min(t + 1, w) - most / w
            change = moved * 0.5 * abs(abs(error) - 0.05) / 0.05
            threshold = max(threshold - change, 0.0) if error <= 0 else min(threshold + change, 2.0 * moved)
            if t == 0 or _far(values[t], last, moved, testing, noise[2 * t]) >= threshold:
                last = (values[t] * giving // moved + noise[2 * t + 1]) * (moved / giving)
                shown[t] = 1
                count += 1
        out[t] = last
    return out


# Filters and feedback.


def fast(values: Integers, epsilon: float, key: bytes, *, sensitivity: float, w: int, rate: float = 0.15) -> Floats:
    """FAST with epsilon / 2 in each block of w values, as any w values meet two blocks."""
    most = max(int(rate * w), 1)
    return _fast(values, max(int(sensitivity), 1), parts(epsilon) // (2 * most), w, most, draws(key, values.size))


@compiled
def _fast(values: Integers, moved: int, given: int, w: int, most: int, noise: Integers) -> Floats:
    out, errors = np.empty(values.size), np.zeros(values.size)
    for begin in range(0, values.size, w):
        count, interval, due, last, variance = 0, 1.0, 0.0, 0.0, 1e-4
        for t in range(begin, min(begin + w, values.size)):
            # Kalman filter of a level that drifts; variances in those of the noise (R = 10 Q).
            variance += 0.1
            first = count == 0
            if count < most and (count < 5 or t - begin >= due):
                noisy = (values[t] * given // moved + noise[t]) * (moved / given)
                gain = 1.0 if first else variance / (variance + 1.0)
                posterior = last + gain * (noisy - last)
                if not first:
                    variance *= 1.0 - gain
                errors[count] = 0.0 if first else abs(posterior - last) / max(posterior, float(moved))
                last, count = posterior, count + 1
                if count > 5:
                    pid = 0.9 * errors[count - 1] + 0.1 * errors[count - 5 : count].mean()
                    interval = max(interval + int(5.0 * (1.0 - math.exp(min(pid / 0.1 - 1.0, 9.0)))), 1.0)
                if count >= 5:
                    due = max(due, 4.0) + interval
            out[t] = last
    return out


def rescue(values: Integers, epsilon: float, key: bytes, *, sensitivity: float, w: int, drift: float = 0.1) -> Floats:
    """Intervals between samples, and their budgets, that follow the changes of what was released, filtered."""
    moved, noise = max(int(sensitivity), 1), draws(key, values.size)
    return _rescue(values, moved, parts(epsilon), w, drift, noise)


@compiled
def _rescue(values: Integers, moved: int, total: int, w: int, drift: float, noise: Integers) -> Floats:
    out, spent, errors = np.empty(values.size), np.zeros(values.size, np.int64), np.zeros(3)
    left, interval, due, last, count = total, 1.0, 0, 0.0, 0
    # Variances in those of the paper, (w sensitivity / epsilon)^2.
    variance, most = 1e-4, total // 5
    for t in range(values.size):
        if t >= w:
            left += spent[t - w]
        variance += drift
        if t >= due:
            given = int(min(min(0.2 * math.log(interval + 1.0), 0.6) * left, most))
            if given > 0:
                noisy = (values[t] * given // moved + noise[t]) * (moved / given)
                gain = variance / (variance + 1.0) if count else 1.0
                before, last = last, last + gain * (noisy - last)
                variance *= 1.0 - gain if count else 1.0
                spent[t] = given
                left -= given
                if count:
                    errors[count % 3] = abs(last - before)
                    used = min(count, 3)
                    pid = 0.9 * errors[count % 3] + 0.1 * errors.sum() / used
                    free = left + (spent[t + 1 - w] if t + 1 >= w else 0)
                    ratio = pid * min(free, most) / (moved * UNITS)
                    interval = max(interval + 10.0 * (1.0 - ratio * ratio), 1.0)
                count += 1
            due = t + int(interval)
        out[t] = last
    return out


def adapub(values: Integers, epsilon: float, key: bytes, *, sensitivity: float, w: int, share: float = 0.8) -> Floats:
    """Each value with a part of epsilon / w, and the median of the run of alike values that ends in it."""
    total = parts(epsilon)
    given = int(total * share) // w
    testing, moved = (total - given * w) // w // 2, max(int(sensitivity), 1)
    return _adapub(values, moved, given, testing, epsilon, draws(key, 2 * values.size))


@compiled
def _adapub(values: Integers, moved: int, given: int, testing: int, epsilon: float, noise: Integers) -> Floats:
    out, errors = np.empty(values.size), np.zeros(values.size)
    start, closed = 0, False
    for t in range(values.size):
        noisy = (values[t] * given // moved + noise[2 * t]) * (moved / given)
        if t:
            errors[t] = abs(out[t - 1] - noisy) / max(noisy, float(moved))
            pid = 0.9 * errors[t] + 0.1 * errors[start:t].sum() / max(t - start, 1)
            threshold = moved * max(1.0, pid * pid / epsilon)
            if closed:
                start, closed = t, False
            else:
                group = values[start : t + 1]
                deviation = np.abs(group - group.mean()).sum() + noise[2 * t + 1] * (moved / testing)
                if max(deviation, 0.0) >= threshold:
                    start, closed = t, True
        out[t] = noisy
        if start < t:
            run = out[start : t + 1].copy()
            out[t] = np.median(run)
    return out


_KELLARIS = "Kellaris, Papadopoulos, Xiao and Papadias 2014 (VLDB), "
_FAST = "Fan and Xiong 2012 (CIKM), Algorithms 3 and 9, in blocks (Kellaris et al. 2014): epsilon / 2 M a sample"
_DSAT = "Li, Xiong, Jiang and Liu 2015 (CIKM), as read by Schäler et al. 2023 (VLDB): epsilon (1 - c / w) tests"
_RESCUE = "Wang et al. 2016 (INFOCOM), one region: at most epsilon / 5 and .6 of the rest; the filter's Q is R / 10"
_ADAPUB = "Wang et al. 2020, one dimension, as Schäler et al. 2023 (VLDB) read it: epsilon 4 : 1 for values and tests"
W_EVENT = (
    Mechanism("Uniform", "w-event", uniform, _KELLARIS + "section 5.1: epsilon / w a step"),
    Mechanism("Sample", "w-event", sample, _KELLARIS + "section 5.1: epsilon every w steps"),
    Mechanism("BD", "w-event", distribution, _KELLARIS + "Algorithm 1: epsilon / 2 for tests, and for releases"),
    Mechanism("BA", "w-event", absorption, _KELLARIS + "Algorithm 2: epsilon / 2 for tests, and for releases"),
    Mechanism("FAST_w", "w-event", fast, _FAST),
    Mechanism(
        *("DSAT", "w-event", dsat, _DSAT),
        breaks="the threshold's noise is drawn once, so that samples outside of a window cost epsilon too",
    ),
    Mechanism("RescueDP", "w-event", rescue, _RESCUE),
    Mechanism(
        *("AdaPub", "w-event", adapub, _ADAPUB),
        breaks="tests look at all values of a group, so that a value is in many tests and a test has many values",
    ),
    Mechanism("Adaptive, w", "w-event", adaptive, "fastdp.Adaptive(contributions=w) (docs/streams.md)"),
    Mechanism("release, w", "w-event", whole_array, "fastdp.release(contributions=w) (docs/streams.md)"),
)
