"""PrivTree (Zhang et al. 2016; PHDStream Algorithm 5): a private decomposition of one set of points, with counts."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any, ClassVar

from fastdp import validation
from fastdp.counters.base import counter_guarantee, event_guarantee
from fastdp.counters.blocks import Simple
from fastdp.errors import StateError
from fastdp.guarantee import Guarantee, sequential
from fastdp.randomness.key import Key
from fastdp.randomness.prefix import step_key
from fastdp.spatial import decomposition
from fastdp.spatial.cell_parameters import make_plan
from fastdp.spatial.cells import encode
from fastdp.spatial.checks import as_points, inside
from fastdp.spatial.domain import Domain, Outside
from fastdp.spatial.tree import ReleasedTree
from fastdp.state.single_caller import CallGuard, single_caller


class PrivTree:
    """One private release of a set of points; half of epsilon for the cells, half for their counts.

    Parameters
    ----------
    domain : Domain
        The public region, such as :class:`Box`.
    epsilon : float
        Privacy loss for one point that is there or not.
    max_depth : int
        D: cells of this depth are not cut any more; fan_out^D at most 2^62.
    fan_out : int
        beta: parts that a cell is cut into, along one axis; the axes take turns.
    threshold : float
        theta: cells that seem to hold more points, after a penalty for depth, are cut.
    outside : str
        ``"raise"`` refuses points outside the domain, ``"clip"`` moves them to its bounding box.
    seed, key
        As for a publisher.

    Notes
    -----
    Privacy: ``docs/phdstream.md``.  Cell counts have noise of scale 2 / epsilon; they are made non-negative and
    consistent from the root down.
    """

    rule: ClassVar[int] = 1

    def __init__(
        self,
        domain: Domain,
        epsilon: float,
        *,
        max_depth: int = 20,
        fan_out: int = 2,
        threshold: float = 0.0,
        outside: Outside = "raise",
        seed: int | str | None = None,
        key: Key | bytes | None = None,
    ) -> None:
        self._guard = CallGuard()
        self.epsilon = validation.positive("epsilon", epsilon)
        self.outside = validation.choice("outside", outside, ("raise", "clip"))
        half = Fraction(self.epsilon) / 2
        self._plan = make_plan(domain, fan_out, max_depth, half, half, Simple(), threshold=threshold)
        self.domain, self.max_depth, self.fan_out = domain, self._plan.max_depth, self._plan.fan_out
        self._residents = decomposition.root_only(self._plan)
        self.threshold = validation.real("threshold", threshold)
        self._key = Key.choose(seed, key).bind(self)
        self._fitted = False

    def identity(self) -> dict[str, Any]:
        """The parameters, for noise keys."""
        names = ("domain", "epsilon", "max_depth", "fan_out", "threshold", "outside")
        return {name: getattr(self, name) for name in names}

    @property
    def noise_fingerprint(self) -> str | None:
        """As for an online publisher (:attr:`fastdp.state.publisher.Publisher.noise_fingerprint`)."""
        return None if self._key.simulated else self._key.fingerprint()

    @property
    def guarantee(self) -> Guarantee:
        """Epsilon for one point, composed of the cells' and the counts' halves."""
        half = self.epsilon / 2
        cells = event_guarantee(
            half, "PrivTree: (2 beta - 1) / (beta - 1) decisions' worth of loss, whatever the depth"
        )
        counts = counter_guarantee(Simple(), half)
        whole = sequential(cells.of("cells"), counts.of("counts"))
        return replace(whole, unit="one point", adjacency="add or remove one point", simulated=self._key.simulated)

    @single_caller
    def fit(self, points: Any) -> ReleasedTree:
        """Release the decomposition of these points, once.

        Parameters
        ----------
        points : array-like, n rows of d numbers
            The points.

        Raises
        ------
        DataError
            For points that are not finite, of another dimension or outside the domain; nothing is released then.
        StateError
            At a second call: the same noise on other points would reveal their difference.
        """
        if self._fitted:
            raise StateError("this PrivTree has been fitted: expected a new one for other points")
        rows = inside(as_points(points, "points", self.domain.dim), self.domain, self.outside, "points")
        codes = encode(self._plan, rows)
        self._fitted = True
        key, _ = step_key(self._key, "", 0, codes)
        _, visit, _ = decomposition.take_step(self._plan, self._residents, codes, codes[:0], 0, key)
        return ReleasedTree(self._plan, visit)
