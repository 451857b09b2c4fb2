"""Cut values and rows of a release, in words: released shares of rows beyond the clip and of persons cut.

Everything here but :func:`released_share` looks at released numbers only.
"""

from __future__ import annotations

from fastdp.errors import AccuracyWarning, warn
from fastdp.noise.key import Key
from fastdp.tables.choices import noisy_counts
from fastdp.tables.plan import TablePlan
from fastdp.tables.sums import WindowSums

#: A share is known if the two counts together are so many noise scales, and above a limit if the difference is.
KNOWN, CLEAR = 8.0, 3.0
#: Shares of rows and persons that are warned of.
MANY_ROWS, MANY_PERSONS = 0.5, 0.1


def released_share(
    counts: tuple[int, int], sensitivity: int, epsilon: float, key: Key, purpose: str, limit: float
) -> tuple[float | None, bool]:
    """The first count's share of both, with noise; None if they are too small to tell; whether it passes a limit.

    Parameters
    ----------
    counts : (int, int)
        Of disjoint rows or persons, of which one unit changes ``sensitivity`` in all.
    epsilon : float
        Its budget.
    """
    noisy = noisy_counts(counts, sensitivity, epsilon, key, purpose).tolist()
    part, rest = (max(0, count) for count in noisy)
    scale, whole = sensitivity / epsilon, part + rest
    share = part / whole if whole > KNOWN * scale else None
    return share, share is not None and part - limit * whole > CLEAR * scale


def clipped_rows(plan: TablePlan, beyond: int, rows: int, key: Key) -> float | None:
    """The released share of rows beyond the clip, with a warning where it is most of them."""
    counts = beyond, rows - beyond
    share, many = released_share(counts, plan.beyond_sensitivity, plan.beyond_epsilon, key, "beyond", MANY_ROWS)
    if many:
        warn(
            f"clip: an estimated {share:.0%} of the rows lie beyond it, so that sums are far off; expected longer "
            "windows, a larger epsilon, or a wider clip that is known publicly (clip=)",
            AccuracyWarning,
        )
    return share


def kept_persons(plan: TablePlan, whole: int, cut: int, key: Key) -> float | None:
    """The released share of persons (in each period) all of whose rows count; a warning where many are cut."""
    share, many = released_share((cut, whole), 1, plan.person_epsilon, key, "persons", MANY_PERSONS)
    if many:
        where = "a period=" if plan.periods is None else f"a period= shorter than {plan.periods.every}"
        warn(
            f"contributions = {plan.contributions}: an estimated {share:.0%} of the persons have more rows, which "
            f"are dropped, so that sums are too low; expected a larger contributions=, or {where}",
            AccuracyWarning,
        )
    return None if share is None else 1.0 - share


def described(sums: WindowSums) -> list[tuple[str, str]]:
    """Names and texts of what was cut, for print and picture."""
    clip = "counts: nothing is clipped"
    if sums.clip is not None:
        low, high = sums.clip
        share = "" if sums.clipped_rows is None else f", which cut about {sums.clipped_rows:.2g} of the rows"
        clip = f"values were clipped to [{low:g}, {high:g}]{share}; intervals are about clipped values"
    persons = []
    if sums.kept_persons is not None:
        persons.append(("persons", f"about {1.0 - sums.kept_persons:.2g} of them have rows that were dropped"))
    return [("clip", clip), *persons]
