"""The guarantee of a composition of threshold, perturber and smoother."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from fastdp.errors import ParameterError
from fastdp.guarantee import Guarantee, of_group, parallel, round_up, sequential
from fastdp.noise.key import Binding, Key
from fastdp.thresholds import Threshold

if TYPE_CHECKING:
    from fastdp.streams.parameters import StreamParameters


#: Derivation step for a threshold that rises.
RISES = (
    "perturber: theta rises as sums released before a block began say, and the block's noise with it: epsilon for "
    "the one block that a value is in (adaptive parallel)"
)
#: Derivation step for intervals.
INTERVALS = "intervals are functions of outputs (post-processing), for values clipped to [0, theta]"
RISING_INTERVALS = f"{INTERVALS}, that of their block"
EVENT_INTERVALS = "intervals are functions of outputs (post-processing)"


def of_stream(composition: StreamParameters) -> Guarantee:
    """Guarantee of an endless stream.

    Threshold and perturber see disjoint values: parallel composition (ToPS section 2.4).  A renewal from published
    values
    shares their budget with the perturber: sequential composition.
    """
    chosen = composition.threshold.guarantee(composition.task)
    whole = composition.perturber.guarantee(composition.plan, composition.publish_epsilon).of("perturber")
    if composition.rises:
        whole = replace(whole, derivation=(*whole.derivation, RISES))
    if composition.renewal is not None:
        renewed = composition.threshold.guarantee(composition.renewal_task)
        assert renewed is not None  # noqa: S101 - a threshold that looks at values costs something
        renewed = renewed.of("renewed threshold, each from values of its own")
        whole = sequential(renewed, whole) if composition.renewal.share else parallel(renewed, whole)
    if chosen is not None:
        whole = parallel(chosen.of("threshold"), whole)
    stated = in_units(composition, whole)
    if composition.gaussian:
        stated = approximated(
            stated, composition.epsilon, composition.delta, composition.threshold, composition.distance
        )
    derivation = stated.derivation
    if composition.noise is not None:
        bounded = RISING_INTERVALS if composition.rises else INTERVALS
        derivation = (*derivation, bounded if composition.sensitivity is None else EVENT_INTERVALS)
    return replace(stated, simulated=whole.simulated, derivation=derivation)


def in_units(composition: StreamParameters, member: Guarantee, meets: str = "") -> Guarantee:
    """`member`, for one value, restated for events or for several contributions.

    `meets` describes the parts of the mechanism that a value enters, if they are not the hold-out or one block or
    tree.
    """
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


def _gaussian_group(composition: StreamParameters, member: Guarantee, unit: str, adjacency: str) -> Guarantee:
    """Guarantee for several contributions, by their joint L2 sensitivity: the total loss is spent once."""
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
    """`stated` as (`epsilon`, `delta`); ParameterError for thresholds without pure epsilon."""
    try:
        return stated.approximate(epsilon, delta, distance)
    except ValueError:
        raise ParameterError(
            f"threshold = {threshold!r}: expected one with pure epsilon, such as NoisyMax, ScaleFree or "
            "Fixed, beside Gaussian noise"
        ) from None


# Equal publishers share one composition with its checks, guarantee and encoding for keys.


def noise_key(composition: Any, secret: Key) -> Key:
    """Noise key of a composition under a secret: :meth:`fastdp.noise.key.Key.bind`."""
    if secret.binding is not Binding.ROOT:
        return secret
    return secret.bound(encoded(composition, secret))


def encoded(composition: Any, secret: Key) -> bytes:
    """:meth:`fastdp.noise.key.Key.composition` under any root secret, cached for shared compositions."""
    own = vars(composition)
    encoding: bytes | None = own.get("encoding")
    if encoding is None:
        encoding = secret.composition(composition)
        if "encoding" in own:
            own["encoding"] = encoding
    return encoding
