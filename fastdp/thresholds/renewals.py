"""Thresholds that follow the stream (ToPS section 7): a short hold-out refined later, or theta renewed.

Without a renewal theta is chosen once.  Both rules change it at the borders between trees of noise only, so
every tree has one sensitivity.
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
    """Theta comes from a fresh hold-out after every ``trees`` trees (ToPS section 7, "Update theta").

    Parameters
    ----------
    trees : int
        Trees published under one theta: ``max_range`` values each, rounded up to whole blocks (65,536 with ``Flat``).
    holdout : int, optional
        Values withheld each time, rounded up to whole blocks; by default the publisher's ``holdout``.

    Notes
    -----
    Privacy: the withheld values enter no tree, and each hold-out chooses one theta: disjoint values, so the
    whole epsilon serves each (parallel composition).  What is published in the place of a withheld value is the mean
    of what the period before it released (post-processing), so positions in the output stay those of the input.
    """

    trees: int = parameter(Whole(1, 2**30), default=1)
    holdout: int | None = parameter(Whole(1, 2**50), default=None)
    share: ClassVar[float] = 0.0
    rule: ClassVar[int] = 1


@record
class RenewFromPublished:
    """Every value published also pays for the next theta (ToPS section 7, "Shorten the Holdout").

    Parameters
    ----------
    share : float
        Part of epsilon that chooses the next theta, in (0, 1); the noise of the published values gets the rest.
    trees : int
        Trees whose values choose the next theta together; as for :class:`RenewFromHoldout`.

    Notes
    -----
    Privacy: a published value enters its trees with (1 - share) epsilon and the choice of the next theta with
    share * epsilon (sequential composition); periods hold disjoint values (parallel).  A short hold-out, whose values
    are not published, chooses the first theta with all of epsilon.

    Memory: what the threshold's rule needs for a whole period; a histogram for ``NoisyMax``, the values themselves
    for the quantiles (and a kept state file holds them too).
    """

    share: float = parameter(Real(above=0.0, below=1.0), default=0.1)
    trees: int = parameter(Whole(1, 2**30), default=1)
    holdout: ClassVar[int | None] = None
    rule: ClassVar[int] = 1


__all__ = ["RenewFromHoldout", "RenewFromPublished", "Renewal"]
