"""Thresholds that follow the stream, changed between trees of noise only (ToPS section 7)."""

from __future__ import annotations

from typing import ClassVar, Protocol

from fastdp.record import Real, Whole, parameter, record


class Renewal(Protocol):
    """Period, source and budget of later thresholds."""

    @property
    def trees(self) -> int:
        """Number of trees published under one theta."""

    @property
    def share(self) -> float:
        """Fraction of epsilon that published values spend on the next theta."""

    @property
    def holdout(self) -> int | None:
        """Values withheld for each later theta; None: as for the first."""


@record
class RenewFromHoldout:
    """Chooses theta from a new hold-out after every ``trees`` trees (ToPS section 7, "Update theta").

    Parameters
    ----------
    trees : int
        Trees under one theta, of ``max_range`` values each (65,536 with ``Flat``).
    holdout : int, optional
        Values withheld each time; by default the publisher's ``holdout``.

    Notes
    -----
    Privacy: withheld values enter no tree, so each hold-out has epsilon; the last period's mean is published instead.
    """

    trees: int = parameter(Whole(1, 2**30), default=1)
    holdout: int | None = parameter(Whole(1, 2**50), default=None)
    share: ClassVar[float] = 0.0
    rule: ClassVar[int] = 1


@record
class RenewFromPublished:
    """Chooses theta from published values too (ToPS section 7, "Shorten the Holdout").

    Parameters
    ----------
    share : float
        Fraction of epsilon, in (0, 1), that chooses the next theta.
    trees : int
        As for :class:`RenewFromHoldout`.

    Notes
    -----
    Privacy: a value enters its trees with (1 - share) epsilon and the next theta with share * epsilon; the first
    hold-out has all of epsilon.
    """

    share: float = parameter(Real(above=0.0, below=1.0), default=0.1)
    trees: int = parameter(Whole(1, 2**30), default=1)
    holdout: ClassVar[int | None] = None
    rule: ClassVar[int] = 1


__all__ = ["RenewFromHoldout", "RenewFromPublished", "Renewal"]
