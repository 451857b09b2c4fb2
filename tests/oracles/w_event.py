"""Uniform, Sample, budget distribution and budget absorption (Kellaris et al. 2014), step by step in fractions.

Values are whole steps up to ``top``, the sensitivity of each.  ``noise(scale, draw, values)`` is the noise of a step:
draw 1 of the comparison, draw 2 of a release; ``values`` are all up to the step's own.
"""

from __future__ import annotations

from fractions import Fraction

SMALLEST = Fraction(1, 2**60)


def release(scheme, values, epsilon, top, w, noise):
    """Published value for each value, and each step's two budgets."""
    epsilon = Fraction(epsilon)
    last, out, budgets = 0, [], []
    covered_until = -1  # absorption: the last step whose budget is used or given up
    for i, value in enumerate(values):
        seen = values[: i + 1]
        first, second = Fraction(0), Fraction(0)
        if scheme == "uniform":
            second = epsilon / w
        elif scheme == "sample":
            second = epsilon if i % w == 0 else Fraction(0)
        else:
            first = epsilon / (2 * w)
            if scheme == "distribution":
                spent = sum((each for _, each in budgets[max(0, i - w + 1) :]), Fraction(0))
                # Half of what is left, in whole parts of epsilon / 2.
                parts = (epsilon / 2 - spent) / 2 / (epsilon / 2 * SMALLEST)
                second = (parts.numerator // parts.denominator) * SMALLEST * epsilon / 2
            else:
                second = min(max(i - covered_until, 0), w) * epsilon / (2 * w)
            if second:
                far = abs(last - value) + noise(top / first, 1, seen)
                if far <= top / second:
                    second = Fraction(0)
        if second:
            last = value + noise(top / second, 2, seen)
            if scheme == "absorption":
                absorbed = min(i - covered_until, w)
                covered_until = i + absorbed - 1
        out.append(last)
        budgets.append((first, second))
    return out, budgets
