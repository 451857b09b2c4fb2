"""Thresholds that follow the stream (ToPS section 7): a short hold-out refined later, or theta renewed.

Both rules change theta at the borders between trees of noise only, so every tree has one sensitivity.
"""

from __future__ import annotations

from typing import ClassVar, Protocol

from fastdp.record import Real, Whole, parameter, record


class Renewal(Protocol):
    """Schedule of later thresholds: their period, their source and their budget."""

    @property
    def trees(self) -> int:
        """Number of trees published under one theta."""

    @property
    def share(self) -> float:
        """Share of epsilon that published values spend on the next theta; 0 if it comes from withheld values."""

    @property
    def holdout(self) -> int | None:
        """Number of values withheld for each later theta; None: as many as for the first."""


@record
class RenewFromHoldout:
    """Theta from a new hold-out after every ``trees`` trees (ToPS section 7, "Update theta").

    Parameters
    ----------
    trees : int
        Trees published under one theta: ``max_range`` values each, rounded up to full blocks (65,536 with ``Flat``).
    holdout : int, optional
        Values withheld each time, rounded up to full blocks; by default the publisher's ``holdout``.

    Notes
    -----
    Privacy: withheld values enter no tree, and each hold-out chooses one theta, so each has the full epsilon
    (parallel).  In place of a withheld value the mean of the previous period's releases is published
    (post-processing), so positions in the output stay those of the input.
    """

    trees: int = parameter(Whole(1, 2**30), default=1)
    holdout: int | None = parameter(Whole(1, 2**50), default=None)
    share: ClassVar[float] = 0.0
    rule: ClassVar[int] = 1


@record
class RenewFromPublished:
    """Theta from published values too (ToPS section 7, "Shorten the Holdout").

    Parameters
    ----------
    share : float
        Share of epsilon that chooses the next theta, in (0, 1); the noise of published values gets the rest.
    trees : int
        Number of trees whose values choose the next theta together; as for :class:`RenewFromHoldout`.

    Notes
    -----
    Privacy: a value enters its trees with (1 - share) epsilon and the next theta with share * epsilon (sequential);
    periods are disjoint (parallel).  A short hold-out, not published, chooses the first theta with all of epsilon.

    Memory: the threshold rule's for a full period: a histogram for ``NoisyMax``, the values for quantiles (also in a
    kept state file).
    """

    share: float = parameter(Real(above=0.0, below=1.0), default=0.1)
    trees: int = parameter(Whole(1, 2**30), default=1)
    holdout: ClassVar[int | None] = None
    rule: ClassVar[int] = 1


__all__ = ["RenewFromHoldout", "RenewFromPublished", "Renewal"]
