"""Components and parameters of a publisher, checked once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, get_args

import numpy as np

from fastdp import perturbers, smoothers, thresholds, validation
from fastdp.data.column import NOT_FINITE, Nonfinite
from fastdp.errors import DataError, ParameterError, argument
from fastdp.guarantee import (
    Guarantee,
    fraction_of,
    gaussian_loss,
    of_group,
    parallel,
    remainder,
    round_up,
    sequential,
    zcdp_loss,
)
from fastdp.integer_grid import Grid, make_event_grid, make_grid
from fastdp.kinds import Floats
from fastdp.noise.chain_keys import BoundPerturber
from fastdp.noise.key import Binding, Key
from fastdp.noise.sampler import draw_scale, group_share, noise_distribution
from fastdp.perturbers import Blocks, Flat, Hierarchy, HierarchyShape, Perturber, Toeplitz
from fastdp.perturbers.base import GroupPerturber, NamedNoise, NormalPerturber, Tree
from fastdp.perturbers.blocks import FINE, BlocksShape
from fastdp.record import Checked, Choice, Kind, PartOf, Real, Whole, parameter, put, record, shared, values_of
from fastdp.releases.intervals import SumNoise
from fastdp.smoothers import Smoother
from fastdp.state import codec
from fastdp.thresholds import Fixed, NoisyMax, ScaleFree, Threshold, ThresholdTask, renewals
from fastdp.thresholds.base import DEFAULT_HOLDOUT, TailRule, as_rule
from fastdp.thresholds.renewals import Renewal
from fastdp.validation import refusal

if TYPE_CHECKING:
    from fastdp.streams.array_rule import ArrayRule

DEFAULT_RANGE = 2**20
#: Derivation step for a threshold that rises.
RISES = (
    "perturber: theta rises as sums released before a block began say, and the block's noise with it: epsilon for "
    "the one block that a value is in (adaptive parallel)"
)
#: Derivation step for intervals.
INTERVALS = "intervals are functions of outputs (post-processing), for values clipped to [0, theta]"
RISING_INTERVALS = f"{INTERVALS}, that of their block"
EVENT_INTERVALS = "intervals are functions of outputs (post-processing)"
_ROLES = ("threshold", "perturber", "smoother", "renewal")
#: Most units that may be protected together.
MAX_CONTRIBUTIONS = 2**30

#: Components that a state file may name; loading a file never runs code from it.
PARTS = codec.NamedParts((thresholds, perturbers, smoothers, renewals))


@record
class StreamParameters:
    """Threshold, perturber and smoother with their parameters."""

    threshold: Threshold = parameter(Checked(as_rule))
    perturber: Perturber = parameter(PartOf(Perturber, "fastdp.perturbers"))
    smoother: Smoother | None = parameter(PartOf(Smoother, "fastdp.smoothers"))
    epsilon: float = parameter(Real(above=0.0))
    bound: float | None = parameter(Real(above=0.0))
    holdout: int = parameter(Kind())
    max_range: int = parameter(Whole(1, 2**40))
    resolution: float | None = parameter(Real(above=0.0))
    nonfinite: Nonfinite = parameter(Choice(get_args(Nonfinite)))
    renewal: Renewal | None = parameter(PartOf(Renewal, "fastdp.thresholds.renewals"), default=None)
    contributions: int = parameter(Whole(1, MAX_CONTRIBUTIONS), default=1)
    sensitivity: float | None = parameter(Real(above=0.0), default=None)
    delta: float = parameter(Real(least=0.0, below=1.0), default=0.0)

    rule: ClassVar[int] = 1
    #: A parameter of earlier versions, which noise keys keep.
    constant_parameters: ClassVar[dict[str, None]] = {"budget": None}

    def _check(self) -> None:
        self._check_size()
        self._check_delta()
        least, usual = (1, DEFAULT_HOLDOUT) if self.threshold.uses_holdout else (0, 0)
        wanted: object = self.holdout
        holdout = validation.integer("holdout", usual if wanted is None else wanted, least, 2**50)
        put(self, holdout=holdout)
        if self.smoother is None and self.plan.block > 1:
            raise ParameterError(
                f"smoother = None: expected a smoother, because the perturber releases blocks of {self.plan.block} "
                f"values (or {argument(prune=0)})"
            )
        needless = self._needless_smoother()
        if self.smoother is not None and needless is not None:
            raise refusal("smoother", self.smoother, f"None, because {needless}")
        focus = None
        if isinstance(self.perturber, Blocks):
            focus = self.perturber.focus
            if self.perturber.leaf_distribution(1, 1.0) is None:
                wanted = "Blocks without a leaf_noise or node_noise of yours, as lengths follow noise bound to sums"
                raise refusal("perturber", self.perturber, f"{wanted} (Flat and Hierarchy may have them)")
        if isinstance(focus, (int, tuple)) and np.max(focus) > self.max_range:
            raise refusal("focus", focus, f"at most max_range = {self.max_range}")
        if self.renewal is not None:
            self._check_renewal(self.renewal)
        put(self, resolution=self.grid.resolution)
        if self.gaussian:
            # For the smallest and the largest threshold: noise that cannot be drawn is refused before any value.
            largest = self.threshold.theta if isinstance(self.threshold, Fixed) else 0.0
            bounded = {1, self.grid.bound_steps} if self.sensitivity is None else set()
            for steps in {*bounded, self.grid.snap(largest)}:
                self._check_noise(steps)
            self.guarantee(simulated=False)

    def _needless_smoother(self) -> str | None:
        if isinstance(self.perturber, Blocks):
            return "blocks that follow the stream predict it themselves"
        if isinstance(self.perturber, Toeplitz):
            return "Toeplitz releases every value"
        if self.perturber.released_nodes:
            return "an inconsistent hierarchy answers ranges from its nodes, and predictions would not enter"
        return None

    def _check_noise(self, steps: int) -> None:
        try:
            if isinstance(self.perturber, BoundPerturber):
                self.perturber.leaf_distribution(steps, self.publish_epsilon)
            else:
                noise_distribution("gaussian", steps, self.plan.levels, self.publish_epsilon)
        except ParameterError:
            wanted = f"a larger epsilon, or a coarser {argument(resolution=...)} than {self.resolution!r}"
            raise ParameterError(
                f"epsilon = {self.epsilon!r}, delta = {self.delta!r}: Gaussian noise for a threshold of {steps:,} "
                f"grid steps cannot be drawn; expected {'a smaller epsilon' if steps == 1 else wanted}"
            ) from None

    @cached_property
    def gaussian(self) -> bool:
        return isinstance(self.perturber, NamedNoise) and self.perturber.noise == "gaussian"

    def _check_delta(self) -> None:
        if not self.gaussian and self.delta:
            raise refusal(
                "delta",
                self.delta,
                f"0, or a perturber with {argument(noise='gaussian')}, because Laplace noise needs none",
            )
        if self.gaussian and not self.delta:
            raise refusal("delta", self.delta, "above 0, such as 1e-9, because Gaussian noise is (epsilon, delta)-DP")
        if self.gaussian and self.renewal is not None:
            raise refusal("renewal", self.renewal, "None with Gaussian noise")

    def _check_size(self) -> None:
        if self.sensitivity is None:
            if self.bound is None:
                raise no_bound()
            return
        if self.bound is not None:
            raise ParameterError(
                f"bound = {self.bound!r} and sensitivity = {self.sensitivity!r}: expected one of them, because a "
                "value that an event moves by at most the sensitivity is not clipped"
            )
        if not isinstance(self.perturber, Blocks):
            raise ParameterError(
                f"sensitivity = {self.sensitivity!r}: expected None, or fastdp.perturbers.Blocks as perturber, "
                "because others measure values by a threshold"
            )
        if self.threshold != Fixed(self.sensitivity):
            raise ParameterError(
                "threshold: expected None with a sensitivity, because nothing is clipped", parameter="threshold"
            )
        if self.holdout not in (None, 0):
            raise refusal("holdout", self.holdout, "None with a sensitivity, because there is no threshold to choose")

    def _check_renewal(self, renewal: Renewal) -> None:
        if not self.threshold.uses_holdout:
            raise refusal("renewal", renewal, f"None, because {type(self.threshold).__name__} looks at no values")
        if isinstance(self.perturber, Blocks):
            raise refusal("renewal", renewal, "None, because blocks measure by one threshold how they go on")
        if self.perturber.released_nodes:
            raise ParameterError(
                f"renewal = {renewal!r}: expected None, because the nodes of an inconsistent hierarchy are released "
                "under one threshold"
            )
        # Errors of later choices are raised now.
        self.threshold.start(self.renewal_task)
        self.threshold.guarantee(self.renewal_task)

    @cached_property
    def loss(self) -> float:
        if not self.gaussian:
            return self.epsilon
        return max(self._zcdp_loss, gaussian_loss(self.epsilon, self.delta, self.distance))

    @cached_property
    def _zcdp_loss(self) -> float:
        return zcdp_loss(self.epsilon, self.delta)

    @cached_property
    def distance(self) -> float:
        """Total variation distance of a unit's noise from rounded normal noise, or 1."""
        if not isinstance(self.threshold, Fixed) or isinstance(self.perturber, Blocks):
            return 1.0
        if not isinstance(self.perturber, NormalPerturber):
            return 1.0
        # This budget gives the least noise.
        sigma = self.grid.snap(self.threshold.theta) / gaussian_loss(self.epsilon, self.delta)
        draws = self.perturber.moved_draws(self.plan, self.contributions)
        return 1.0 if sigma < 16.0 else min(1.0, draws / (20.0 * sigma**2) + 2.0**-90)

    @cached_property
    def unit_epsilon(self) -> float:
        return share_of_each(self.loss, self.contributions)

    @cached_property
    def publish_epsilon(self) -> float:
        """The perturber's budget, less that of renewals from the same values."""
        if self.gaussian:
            return group_share(self.loss, self.group_square)
        epsilon = self.unit_epsilon
        if self.renewal is None or not self.renewal.share:
            return epsilon
        rest = remainder(epsilon, epsilon * self.renewal.share)
        if min(rest, epsilon * self.renewal.share) <= 0.0:
            raise refusal("share", self.renewal.share, "both parts of epsilon above 0")
        return rest

    @cached_property
    def plan(self) -> HierarchyShape:
        # With Gaussian noise the perturber's budget follows from the shape.
        if self.gaussian:
            return self.perturber.plan(fraction_of(self._zcdp_loss, self.contributions), self.max_range)
        return self.perturber.plan(self.publish_epsilon, self.max_range)

    @property
    def group_square(self) -> int | Fraction:
        """Squared L2 sensitivity of w contributions in one's: (j / w)^2 + l / w <= 1 for j + l = w."""
        w = self.contributions
        return self.perturber.group_square(self.plan, w) if isinstance(self.perturber, GroupPerturber) else w * w

    @cached_property
    def grid(self) -> Grid:
        # With Gaussian noise the budget follows from the grid: it is at least this.
        epsilon = group_share(self._zcdp_loss, self.group_square) if self.gaussian else self.publish_epsilon
        if self.sensitivity is not None:
            return make_event_grid(self.sensitivity, self.resolution, epsilon, self.max_range)
        bound = validation.positive("bound", self.bound)
        return make_grid(bound, self.resolution, epsilon, self.max_range, self.plan.levels, self.plan.fan_out)

    @cached_property
    def noise(self) -> SumNoise | None:
        """Noise of sums, for intervals; None for users' perturbers and renewed thresholds."""
        if self.renewal is not None or type(self.perturber) not in (Blocks, Flat, Hierarchy, Toeplitz):
            return None
        if isinstance(self.perturber, Toeplitz):
            return self.perturber.sum_noise(self.publish_epsilon, self.grid.resolution)
        plan = self.plan
        per_threshold = draw_scale("gaussian" if self.gaussian else "laplace", plan.levels, self.publish_epsilon)
        if not isinstance(self.perturber, Hierarchy):
            bounded = self.sensitivity is None
            return SumNoise("blocks", per_threshold, self.grid.resolution, bounded=bounded, gaussian=self.gaussian)
        return SumNoise(
            "tree" if self.perturber.consistent else "nodes",
            per_threshold,
            self.grid.resolution,
            fan_out=plan.fan_out,
            levels=plan.levels,
            tree_blocks=plan.tree_blocks,
            gaussian=self.gaussian,
        )

    @cached_property
    def noise_and_fraction_above(self) -> SumNoise | None:
        if self.noise is None or self.bound is None:
            return self.noise
        if not isinstance(self.threshold, TailRule):
            return replace(self.noise, bound=self.grid.bound)
        fraction, slope = self.threshold.fraction_above(self.task)
        return replace(self.noise, above=fraction, slope=slope, bound=self.grid.bound)

    @cached_property
    def task(self) -> ThresholdTask:
        return ThresholdTask(
            self.unit_epsilon,
            self.grid.bound,
            self.holdout - self.warm_up,
            self.max_range,
            self.grid.resolution,
            self.publish_epsilon,
            self.perturber.noise_constant(self.plan, self.max_range),
        )

    @cached_property
    def warm_up(self) -> int:
        return self.perturber.warm_up(self.holdout) if isinstance(self.perturber, Blocks) else 0

    @cached_property
    def rises(self) -> bool:
        follows = isinstance(self.perturber, Blocks) and self.perturber.rising
        return follows and self.threshold.uses_holdout and self.warm_up > 0

    @cached_property
    def refines(self) -> bool:
        return self.renewal is not None and self.renewal.share > 0.0

    @cached_property
    def period(self) -> int | None:
        return None if self.renewal is None else self.renewal.trees * self.plan.tree_blocks * self.plan.block

    @cached_property
    def renewal_task(self) -> ThresholdTask:
        assert self.renewal is not None  # noqa: S101 - asked for by renewals alone
        assert self.period is not None  # noqa: S101
        if self.renewal.share:
            return replace(self.task, epsilon=self.unit_epsilon * self.renewal.share, holdout=self.period)
        wanted = self.task.holdout if self.renewal.holdout is None else self.renewal.holdout
        block = self.plan.block
        return replace(self.task, holdout=-(-wanted // block) * block)

    def finite(self, values: Floats, before: int, name: str) -> Floats:
        return only_finite(values, before, name, self.nonfinite)

    def noise_key(self, secret: Key) -> Key:
        return noise_key(self, secret)

    def noise_keys(self, secrets: Sequence[Key]) -> list[Key]:
        if not secrets or secrets[0].binding is not Binding.ROOT:
            return list(secrets)
        composition = encoded(self, secrets[0])
        return [secret.bound(composition) for secret in secrets]

    def guarantee(self, *, simulated: bool) -> Guarantee:
        return replace(self._stated, simulated=True) if simulated else self._stated

    @cached_property
    def _stated(self) -> Guarantee:
        return of_stream(self)

    def describe(self) -> dict[str, Any]:
        fields = values_of(self)
        for role in _ROLES:
            fields[role] = codec.describe_part(fields[role], PARTS)
        return fields

    @classmethod
    def from_description(cls, description: dict[str, Any]) -> StreamParameters:
        fields = dict(description)
        for role in _ROLES:
            fields[role] = codec.build_part(fields[role], PARTS)
        return cls(**fields)


def only_finite(values: Floats, before: int, name: str, nonfinite: Nonfinite) -> Floats:
    """Replace values that are no number by 0, or refuse them by DataError."""
    finite = np.isfinite(values)
    if finite.all():
        return values
    if nonfinite == "raise":
        raise DataError(
            f"{name}[{before + int(np.argmin(finite))}]: {NOT_FINITE}; expected finite values "
            f"({argument(nonfinite='zero')} makes them count as 0)"
        )
    return np.where(finite, values, 0.0)


def share_of_each(loss: float, contributions: int) -> float:
    """Budget of one of the values protected together."""
    share = fraction_of(loss, contributions)
    if share <= 0.0:
        raise ParameterError(f"contributions = {contributions}: expected a share of epsilon above 0 for each")
    return share


def no_bound() -> ParameterError:
    """Error about a missing bound."""
    return ParameterError(
        "bound = None: expected a number, the public upper bound of a value; counts of events need none "
        f"({argument(sensitivity=1)}: an event moves one value by at most 1)",
        parameter="bound",
    )


def noise_key(composition: object, secret: Key) -> Key:
    """Noise key of a composition (:meth:`fastdp.noise.key.Key.bind`)."""
    if secret.binding is not Binding.ROOT:
        return secret
    return secret.bound(encoded(composition, secret))


def encoded(composition: object, secret: Key) -> bytes:
    """:meth:`fastdp.noise.key.Key.composition`, cached."""
    cache = vars(composition)
    encoding: bytes | None = cache.get("encoding")
    if encoding is None:
        encoding = secret.composition(composition)
        if "encoding" in cache:
            cache["encoding"] = encoding
    return encoding


# Guarantees.


def of_stream(composition: StreamParameters) -> Guarantee:
    """Guarantee of an endless stream."""
    chosen, plan = composition.threshold.guarantee(composition.task), composition.plan
    if isinstance(plan, BlocksShape):
        known = composition.threshold.theta if isinstance(composition.threshold, Fixed) else math.inf
        plan = plan if composition.grid.snap(known) >= FINE else replace(plan, group=0)
    guarantee = composition.perturber.guarantee(plan, composition.publish_epsilon).of("perturber")
    if composition.rises:
        guarantee = replace(guarantee, derivation=(*guarantee.derivation, RISES))
    if composition.renewal is not None:
        renewed = composition.threshold.guarantee(composition.renewal_task)
        if renewed is not None:
            renewed = renewed.of("renewed threshold, each from values of its own")
            guarantee = sequential(renewed, guarantee) if composition.renewal.share else parallel(renewed, guarantee)
    if chosen is not None:
        guarantee = parallel(chosen.of("threshold"), guarantee)
    stated = in_units(composition, guarantee)
    if composition.gaussian:
        stated = approximated(
            stated, composition.epsilon, composition.delta, composition.threshold, composition.distance
        )
    derivation = stated.derivation
    if composition.noise is not None:
        bounded = RISING_INTERVALS if composition.rises else INTERVALS
        derivation = (*derivation, bounded if composition.sensitivity is None else EVENT_INTERVALS)
    return replace(stated, simulated=guarantee.simulated, derivation=derivation)


def in_units(composition: StreamParameters | ArrayRule, member: Guarantee, meets: str = "") -> Guarantee:
    """Restate `member`, of one value, for events or contributions; `meets`: its other steps."""
    w, unit, adjacency = composition.contributions, member.unit, member.adjacency
    if composition.sensitivity is not None:
        moves = f"moves one value by at most {composition.sensitivity:g}"
        unit, adjacency = "one event", f"add or remove one event ({moves})"
        step = f"an event {moves} (theta), and so one block's sum; nothing is clipped"
        member = replace(member, unit=unit, adjacency=adjacency, derivation=(*member.derivation, step))
    if w == 1:
        return member
    if composition.gaussian:
        return _gaussian_group(composition, member, unit, adjacency)
    together = "losses add up, each is a fraction of epsilon"
    if composition.sensitivity is not None:
        unit, adjacency = f"any {w} events", f"add or remove them (each {moves})"
        step = f"{w} events lose {w} times that (group): {together}"
    else:
        unit, adjacency = f"any {w} consecutive values", "replace them"
        step = (
            f"of {w} values j choose a threshold and {w} - j enter blocks or trees, each of them for 1/{w} of "
            f"epsilon: {together}, j/{w} and ({w} - j)/{w}"
        )
        step = f"{meets}: {together} (group)" if meets else step
    return of_group(member, w, composition.epsilon, unit, adjacency, step)


def _gaussian_group(
    composition: StreamParameters | ArrayRule, member: Guarantee, unit: str, adjacency: str
) -> Guarantee:
    if math.isinf(member.rho):
        # A threshold with a delta of its own: there is no rho for any number of values.
        return member
    w, square = composition.contributions, float(composition.group_square)
    if composition.sensitivity is None:
        unit, adjacency = f"any {w} consecutive values", "replace them"
    else:
        unit, adjacency = f"any {w} events", f"add or remove them (each by at most {composition.sensitivity:g})"
    rho = round_up(Fraction(composition.loss) ** 2 / 2)
    step = (
        f"{w} values move the sums by sqrt({square:g}) times what one does, in the L2 norm, and j of them that "
        f"choose a threshold lose j/{w} of sqrt(2 rho): rho = {rho:g} together"
    )
    return replace(member, rho=rho, unit=unit, adjacency=adjacency, derivation=(*member.derivation, step))


def approximated(
    stated: Guarantee, epsilon: float, delta: float, threshold: Threshold, distance: float | None = None
) -> Guarantee:
    """Restate a guarantee as (`epsilon`, `delta`), of pure thresholds."""
    try:
        return stated.approximate(epsilon, delta, distance)
    except ValueError:
        raise ParameterError(
            f"threshold = {threshold!r}: expected one with pure epsilon, such as NoisyMax, ScaleFree or "
            "Fixed, beside Gaussian noise"
        ) from None


# Equal publishers share one composition with its checks, guarantee and encoding for keys.


def composed(*, threshold: object, perturber: object, **fields: Any) -> StreamParameters:
    """Composition with these fields, shared unless a renewal may warn."""
    if threshold is None:
        threshold = default_threshold(perturber, fields.get("sensitivity"))
    warns = fields.get("renewal") is not None
    return shared(StreamParameters, threshold=threshold, perturber=perturber, **fields, warns=warns)


def default_threshold(perturber: object, sensitivity: float | None = None) -> Threshold:
    """Default threshold for a perturber."""
    if sensitivity is not None:
        return Fixed(validation.positive("sensitivity", sensitivity))
    if isinstance(perturber, Blocks):
        return ScaleFree(lengths="all")
    return NoisyMax(fan_out=perturber.fan_out) if isinstance(perturber, Tree) else NoisyMax()


def as_blocks(perturber: Blocks | None, delta: float) -> Blocks:
    """`perturber` or ``Blocks()``, Gaussian if `delta` > 0; ParameterError for another class."""
    blocks = Blocks() if perturber is None else perturber
    if not isinstance(blocks, Blocks):
        raise refusal("perturber", blocks, "fastdp.perturbers.Blocks(...)")
    return replace(blocks, noise="gaussian") if delta else blocks
