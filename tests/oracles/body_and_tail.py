"""Sums by body and tail, from released numbers alone; slow: lists, one formula a line."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

RATIO = 1.5
NEED = {1: 6.5, 2: 5.6, 3: 5.2, 4: 5.0, 6: 5.0, 8: 5.0}


def edges(bound):
    return [bound * float(Fraction(2, 3) ** j) for j in range(57)]


def standing(h, sd):
    """First and last bin that stand out, alone or in a group."""
    n, top, low = len(h), len(h), -1
    for m, need in NEED.items():
        least = need * sd * math.sqrt(m)
        while True:
            found = [i for i in range(top - m + 1) if sum(h[i : i + m]) > least]
            if not found:
                break
            if top == n:
                low = found[-1] + m - 1
            top = found[-1] if m > 1 else found[0]
        found = [i for i in range(n - m + 1) if sum(h[i : i + m]) > least]
        if found and m in (1, 2, 4):
            low = max(low, found[-1] + m - 1)
    return top, low


class Side:
    def __init__(self, bound, noisy, noise, per=1.0, most=1.0, spread=0.0):
        self.e = edges(bound)
        self.h, self.sd, self.most, self.spread = [per * each for each in noisy], per * noise, most, spread
        self.lower = [*self.e[1:], 0.0]
        self.top, self.low = standing(self.h, self.sd)
        self.known = self.low >= 0
        self.used = range(self.top, self.low + 1) if self.known else range(0)
        self.mid = [math.sqrt(e * max(b, e / RATIO)) for e, b in zip(self.e, self.lower, strict=True)]
        self.rows = {i: max(self.h[i], 0.0) for i in self.used}
        self.total = sum(self.rows[i] * self.mid[i] for i in self.used)
        if self.known:
            self.c2 = self.e[self.top]
            self.find_tail()

    def find_tail(self):
        above = {i: sum(self.rows[j] for j in range(self.top, i + 1)) for i in self.used}
        last, fall = min(self.low, self.top + 3), 1.5
        if last > self.top:
            fall = math.log(max(above[last], 1) / max(above[self.top], 1)) / math.log(self.e[self.top] / self.e[last])
        for i in range(self.top - 1, max(self.top - 8, -1), -1):
            most = max(sum(self.h[i : self.top]) + 2 * self.sd * math.sqrt(self.top - i), 1)
            if most < above[self.top]:
                fall = max(fall, 0.5 * math.log(above[self.top] / most) / math.log(self.e[i] / self.e[self.top]))
        self.alpha = min(max(fall, 1.5), 20.0)
        self.m = above[self.top] * (self.lower[self.top] / self.e[self.top]) ** self.alpha

    def beyond(self, c):
        sums = squares = variance = 0.0
        for i in self.used:
            d = max(self.mid[i] - c, 0.0)
            sums += self.h[i] * d
            squares += self.rows[i] * d * d * self.most
            lump = self.rows[i] * min(self.e[i] - self.lower[i], max(self.e[i] - c, 0)) / math.sqrt(12)
            variance += d * d * self.sd**2 + lump**2
        return sums, squares, variance + (self.spread * sums) ** 2

    def rest(self, c):
        if not self.known or c >= self.e[0]:
            return 0.0
        f = [(max(x, self.c2) / self.c2) ** (1 - self.alpha) for x in (c, self.e[0])]
        return self.m * self.c2 / (self.alpha - 1) * (f[0] - f[1])

    def rest_var(self, c, to=None):
        return ((0.7 + self.spread) * (self.rest(c) - (self.rest(to) if to is not None else 0.0))) ** 2

    def hidden(self, c, z):
        far = [max(e - c, 0) for e in self.e]
        one = max(d * (max(h, 0.0) + z * self.sd) for d, h in zip(far, self.h, strict=True))
        both = sum(d * h for d, h in zip(far, self.h, strict=True)) + z * self.sd * math.sqrt(sum(d * d for d in far))
        return self.most * max(one, both)


def second_clip(sides, c, per_step):
    bound, known = max(s.e[0] for s in sides), [s for s in sides if s.known]
    if not known or per_step * (bound - c) <= 0.03 * sum(s.total for s in sides):
        return bound
    ends = sorted(e for e in sides[0].e if e >= max(s.c2 for s in known))
    costs = [(per_step * (x - c)) ** 2 + sum(0.7 * s.rest(x) for s in known) ** 2 for x in ends]
    return ends[costs.index(min(costs))]


def choose(sides, noise, g, together):
    """Body's clip, second clip, whether cells have sums; noise a step: body, body alone, tail, one number."""
    body, alone, tail, one = noise
    known, r = [s for s in sides if s.known], max(1.0, min(together, g))
    best = math.inf, None
    if known:
        c2 = second_clip(sides, 0.0, tail)
        for c in sorted({e for s in known for e in s.e} | {c2}):
            if (c > c2 and g > 1) or c < min(s.lower[s.low] for s in known):
                continue
            e, sq, v = (sum(s.beyond(c)[i] for s in known) for i in range(3))
            full = c >= c2
            error = 0.0 if full else min((tail * (c2 - c)) ** 2, v)
            error += sum(s.rest_var(max(c, c2)) for s in sides) * (g == 1)
            mse = r * ((alone if full else body) * c) ** 2 + (r / g) ** 2 * error
            mse += ((0.5 * e * r / g) ** 2 + sq * r / g) * (r < g)
            best = min(best, (mse, c))
    if not known or (g > 1 and best[0] >= (r * sum(s.total for s in sides) / g) ** 2):
        return 0.0, second_clip(sides, 0.0, one), False
    return best[1], max(second_clip(sides, best[1], tail), best[1]), True


def rest_of(sides, clips, number, variance):
    """Sum up to c2 beyond the body, its variance, sum of squares; modelled rest and its variance."""
    c, c2, cells = clips

    def add(f):
        return sum(sign * f(s) for sign, s in zip((1, -1), sides, strict=False))

    value = error = squares = 0.0
    if not cells:
        value, error = number, variance
    elif c2 > c:
        own = add(lambda s: s.beyond(c)[0] + s.rest(c) - s.rest(c2))
        v = sum(s.beyond(c)[2] + s.rest_var(c, c2) for s in sides)
        error = 1 / (1 / variance + 1 / v)
        value, squares = (number / variance + own / v) * error, sum(s.beyond(c)[1] for s in sides)
        value = value if len(sides) > 1 else max(value, 0.0)
    return value, error, squares, add(lambda s: s.rest(c2)), sum(s.rest_var(c2) for s in sides)


def intervals(sides, clips, beyond, k, body, half, part, z, one, rows):
    """Estimate, low and high of ranges; z, one, rows: quantiles of errors, of an end, of hidden rows."""
    (_, c2, cells), (value, error, squares, rest, _), signed = clips, beyond, len(sides) > 1
    bound, out = max(s.e[0] for s in sides), []
    up, down = sides[0].hidden(c2, one), sides[1].hidden(c2, one) if signed else 0.0
    unit = k * (bound - c2) or 1.0
    for b, n, p in zip(body, half, part, strict=True):
        est = b + p * (value + rest)
        if not cells:
            w = z * math.sqrt(error)
            low, high = value - w - down, value + w + up
            if p < 1 - 1e-9:
                low, high = (math.nan, math.nan) if signed else (0.0, max(high, w))
            elif not signed:
                low, high = max(low, 0.0), max(high, w)
            est = est if signed else max(est, 0.0)
            out.append((est, np.minimum(low, est), np.maximum(high, est)))
            continue
        hide = [
            max(p * h, min(h, unit * np.rint(p * h / unit + rows * math.sqrt(p * h / unit * max(1 - p, 0)))))
            for h in (down, up)
        ]
        q = max(p * (1 - p), 0)
        w = math.sqrt(n**2 + z**2 * (p**2 * error + q * squares + (value * q) ** 2))
        # Ends hold what was measured, and the most that noise hides.
        low, high = b + p * value - w - hide[0], b + p * value + w + hide[1]
        low, high = (low, high) if signed else (max(low, b - n, 0.0), max(high, n))
        out.append((est, min(low, est), max(high, est)))
    return np.array(out)
