"""Guarantees and their composition (ToPS section 2.4)."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache, reduce
from typing import Any, Protocol, runtime_checkable

from fastdp import validation
from fastdp.errors import ParameterError
from fastdp.record import put, values_of
from fastdp.units import Times, UnitRows
from fastdp.validation import refusal


@dataclass(frozen=True)
class Guarantee:
    """States a differential-privacy guarantee with its assumptions and derivation.

    Parameters
    ----------
    epsilon : float
        Probabilities of outputs of adjacent streams are at most a factor e^epsilon apart.
    delta : float
        Probability that the factor may fail.
    unit : str
        Protected unit.
    adjacency : str
        Definition of adjacent streams.
    model : str
        ``"central"`` (a trusted curator) or ``"local"``.
    arithmetic : str
        ``"exact"``: proved for the machine's integers; ``"real"``: for real numbers only.
    numeric_distance : float
        Total variation distance of the noise from its distribution; 0 for exact samplers.
    simulated : bool
        True if the noise came from a seed: not private.
    derivation : tuple of str
        Steps of the proof.
    rho : float
        The mechanism is rho-zCDP (:meth:`at_delta` converts); ``inf`` if not claimed.
    rows : UnitRows or None
        Unit and adjacency of a table, for ledgers.
    times : Times or None
        Public times outside which no row changes a table's release.

    Examples
    --------
    >>> import fastdp
    >>> publisher = fastdp.Adaptive(epsilon=0.5, bound=100.0, threshold=20.0)
    >>> guarantee = publisher.guarantee
    >>> print(guarantee)
    epsilon = 0.5 for one value of the stream (replace one value), central model, exact on this machine
    >>> fastdp.Guarantee.from_dict(guarantee.to_dict()) == guarantee
    True
    """

    epsilon: float
    delta: float = 0.0
    unit: str = "one value of the stream"
    adjacency: str = "replace one value"
    model: str = "central"
    arithmetic: str = "real"
    numeric_distance: float = 0.0
    simulated: bool = False
    derivation: tuple[str, ...] = ()
    rho: float = math.inf
    rows: UnitRows | None = None
    times: Times | None = None

    def __post_init__(self) -> None:
        for name, value in values_of(self, *_NUMBERS).items():
            if type(value) is not float or not value >= 0.0:
                put(self, **{name: _amount(name, value)})
        for name, value in values_of(self, *_TEXTS).items():
            if not isinstance(value, str):
                raise validation.refusal(name, value, "a text")
        validation.flag("simulated", self.simulated)
        steps: object = self.derivation
        if not isinstance(steps, (list, tuple)) or not all(isinstance(step, str) for step in steps):
            raise validation.refusal("derivation", steps, "a list of texts")
        put(self, derivation=tuple(steps))
        if self.rows is None is self.times:
            return
        try:
            rows, times = UnitRows.read(self.rows), Times.read(self.times)
        except (TypeError, ValueError):
            shown = f"rows = {validation.shown(self.rows)}, times = {validation.shown(self.times)}"
            wanted = "expected None, or column, number and period of rows; column, zone and two instants"
            raise ParameterError(f"{shown}: {wanted}") from None
        put(self, rows=rows, times=times)

    def __str__(self) -> str:
        loss = self.cost
        exactness = "exact on this machine" if self.arithmetic == "exact" else "stated for real arithmetic"
        line = f"{loss} for {self.unit} ({self.adjacency}), {self.model} model, {exactness}"
        return line + (", SIMULATED (seeded noise, not private)" if self.simulated else "")

    def _repr_html_(self) -> str:
        from fastdp.notebook import as_html

        return as_html(str(self), ("step", "of the derivation"), enumerate(self.derivation, 1))

    def of(self, component: str) -> Guarantee:
        """Prefix the derivation with `component` and its cost."""
        return replace(self, derivation=tuple(f"{component} ({self.cost}): {step}" for step in self.derivation))

    @property
    def cost(self) -> str:
        """Epsilon and delta in words, or rho."""
        if math.isinf(self.epsilon) and math.isfinite(self.rho):
            return f"rho = {self.rho:g}"
        return f"epsilon = {self.epsilon:g}" + (f", delta = {self.delta:g}" if self.delta else "")

    @property
    def zcdp(self) -> float:
        """The rho that holds: the claimed, or epsilon^2 / 2 of pure epsilon; else `inf`."""
        pure = math.inf if self.delta or math.isinf(self.epsilon) else round_up(Fraction(self.epsilon) ** 2 / 2)
        return min(self.rho, pure)

    def at_delta(self, delta: float) -> Guarantee:
        """The guarantee with epsilon from rho at `delta`; ParameterError without rho."""
        if math.isinf(self.rho):
            raise refusal("delta", delta, f"a guarantee with a rho, this one has none ({self})")
        delta = validation.probability("delta", delta)
        return replace(self, epsilon=zcdp_epsilon(self.rho, delta), delta=delta)

    @validation.plain
    def approximate(self, epsilon: float, delta: float, distance: float | None = None) -> Guarantee:
        """The guarantee as (`epsilon`, `delta`); ValueError if its rho is too large.

        With the `distance` of Gaussian from rounded normal noise Gaussian DP's conversion is tried first.
        """
        if distance is not None and gaussian_delta(math.sqrt(2.0 * self.rho), epsilon, distance) <= delta:
            step = (
                f"all noise is Gaussian, within {distance:.1e} of rounded normal noise: sqrt(2 rho)-GDP, which gives "
                f"epsilon = {epsilon:g} at delta = {delta:g} (Dong, Roth and Su 2022)"
            )
            return replace(self, epsilon=epsilon, delta=delta, derivation=(*self.derivation, step))
        if not zcdp_delta(self.rho, epsilon) <= delta:
            raise ValueError(f"rho = {self.rho!r} does not give epsilon = {epsilon!r} at delta = {delta!r}")
        step = f"rho = {self.rho:g} gives epsilon = {epsilon:g} at delta = {delta:g} (conversion of zCDP)"
        return replace(self, epsilon=epsilon, delta=delta, derivation=(*self.derivation, step))

    def identity(self) -> dict[str, Any]:
        """Fields for a noise key."""
        return {name: value for name, value in values_of(self).items() if name != "times"}

    def to_dict(self) -> dict[str, Any]:
        """Fields for strict JSON; infinity is ``"inf"``."""
        fields = values_of(self)
        endless: dict[str, Any] = {name: "inf" for name in _NUMBERS if fields[name] == math.inf}
        return {**fields, **endless, "derivation": list(self.derivation)}

    def to_json(self) -> str:
        """One line of strict JSON (RFC 8259)."""
        return json.dumps(self.to_dict(), allow_nan=False)

    @classmethod
    def from_dict(cls, fields: Any) -> Guarantee:
        """Guarantee of :meth:`to_dict`; ParameterError for other fields."""
        known = [field.name for field in dataclasses.fields(cls)]
        if not isinstance(fields, Mapping) or set(fields) != set(known):
            raise refusal("fields", fields, f"a mapping with {', '.join(known)}")
        return cls(**{**fields, **{name: math.inf for name in _NUMBERS if fields[name] == "inf"}})


#: Relative margin below the loss that (epsilon, delta) allows: covers the rounding up of components and the rounding
#: of the conversion.
_MARGIN = 2.0**-30
#: Fields that are floats, and texts.
_NUMBERS = ("epsilon", "delta", "numeric_distance", "rho")
_TEXTS = ("unit", "adjacency", "model", "arithmetic")
#: Fields that guarantees which compose have in common.
_SAME = ("unit", "adjacency", "model", "rows")


def _amount(name: str, value: Any) -> float:
    if isinstance(value, float) and value == math.inf:
        return math.inf
    number = validation.real(name, value)
    if number < 0.0:
        raise refusal(name, value, "at least 0")
    return math.nextafter(number, math.inf) if number < value else number


def pure(epsilon: float, *derivation: str) -> Guarantee:
    """Pure, exact guarantee of `epsilon`."""
    return Guarantee(epsilon, arithmetic="exact", derivation=derivation)


def _merge(first: Guarantee, second: Guarantee, epsilon: float, delta: float) -> Guarantee:
    if values_of(first, *_SAME) != values_of(second, *_SAME):
        raise ValueError("guarantees with different units, adjacencies or models do not compose")
    return Guarantee(
        epsilon=epsilon,
        delta=delta,
        unit=first.unit,
        adjacency=first.adjacency,
        model=first.model,
        arithmetic="exact" if first.arithmetic == second.arithmetic == "exact" else "real",
        numeric_distance=first.numeric_distance + second.numeric_distance,
        simulated=first.simulated or second.simulated,
        derivation=first.derivation + second.derivation,
        rows=first.rows,
        times=first.times if first.times == second.times else None,
    )


def zcdp_delta(rho: float, epsilon: float) -> float:
    """Delta for which `rho`-zCDP implies (`epsilon`, delta).

    Source: Canonne, Kamath and Steinke 2020, Proposition 12; every order alpha > 1 is valid.
    """
    if rho == 0.0:
        return 0.0
    order = zcdp_order(rho, epsilon)
    exponent = (order - 1.0) * (order * rho - epsilon) + order * math.log1p(-1.0 / order) - math.log(order - 1.0)
    return min(1.0, math.exp(exponent) * (1.0 + 1e-9))


def zcdp_order(rho: float, epsilon: float) -> float:
    """Order alpha > 1 for which :func:`zcdp_delta` is smallest."""
    # Where the logarithm of delta has its least value its slope, which rises with alpha, is 0.
    low, high = 1.0 + 1e-9, 2.0 + (epsilon + 1.0) / rho
    for _ in range(200):
        alpha = (low + high) / 2.0
        rises = (2.0 * alpha - 1.0) * rho - epsilon + math.log1p(-1.0 / alpha) >= 0.0
        low, high = (low, alpha) if rises else (alpha, high)
    return high


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Epsilon for which `rho`-zCDP implies (epsilon, `delta`)."""
    if rho == 0.0:
        return 0.0
    # Bun and Steinke 2016, Proposition 1.3, is never better.
    low, high = 0.0, rho + 2.0 * math.sqrt(rho * math.log(1.0 / delta)) if delta < 1.0 else 0.0
    for _ in range(100):
        middle = (low + high) / 2.0
        low, high = (low, middle) if zcdp_delta(rho, middle) <= delta else (middle, high)
    return high


@lru_cache(maxsize=256)
def zcdp_rho(epsilon: float, delta: float) -> float:
    """Largest rho found that implies (`epsilon`, `delta`)."""
    return _largest(epsilon, lambda rho: zcdp_delta(rho, epsilon) <= delta)


def _largest(start: float, fits: Callable[[float], bool]) -> float:
    low, high = 0.0, start
    while fits(high):
        low, high = high, 2.0 * high
    for _ in range(100):
        middle = (low + high) / 2.0
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def zcdp_loss(epsilon: float, delta: float) -> float:
    """Loss x to divide among components: x^2 / 2 is :func:`zcdp_rho`, rounded down."""
    if not 2.0**-60 <= epsilon <= 2.0**60:
        raise refusal("epsilon", epsilon, "from 2^-60 to 2^60 with a delta")
    return math.sqrt(2.0 * zcdp_rho(epsilon, delta)) * (1.0 - _MARGIN)


def gaussian_delta(mu: float, epsilon: float, distance: float = 0.0) -> float:
    """Delta at `epsilon` of noise at `distance` from normal noise of sensitivity / deviation `mu`.

    Source: Balle and Wang 2018, Theorem 8.
    """
    least, most = _normal_tail(mu, epsilon), _normal_tail(-mu, -epsilon)
    grown = math.exp(min(epsilon, 700.0))
    # P~1 <= P1 + d <= e^eps P2 + delta + d <= e^eps P~2 + delta + (1 + e^eps) d.
    return max(least - grown * most, 0.0) + 1e-9 * least + (1.0 + grown) * distance


def _normal_tail(mu: float, epsilon: float) -> float:
    return 0.5 * math.erfc((epsilon / mu - mu / 2.0) / math.sqrt(2.0))


def gaussian_loss(epsilon: float, delta: float, distance: float = 0.0) -> float:
    """Largest mu found with :func:`gaussian_delta` at most `delta`, or 0."""
    return _largest(epsilon, lambda mu: gaussian_delta(mu, epsilon, distance) <= delta) * (1.0 - _MARGIN)


def root_below(square: Fraction) -> float:
    """Largest float x found with x^2 <= `square`."""
    root = math.sqrt(square)
    while Fraction(root) ** 2 > square:
        root = math.nextafter(root, 0.0)
    return root


def parallel(*guarantees: Guarantee) -> Guarantee:
    """Guarantee on disjoint values: the largest epsilon and delta."""
    composed = reduce(lambda a, b: _merge(a, b, max(a.epsilon, b.epsilon), max(a.delta, b.delta)), guarantees)
    if len(guarantees) == 1:
        return composed
    if any(math.isfinite(g.rho) for g in guarantees):
        composed = replace(composed, rho=max(g.zcdp for g in guarantees))
    return replace(composed, derivation=(*composed.derivation, "disjoint values: the larger epsilon counts"))


def sequential(*guarantees: Guarantee) -> Guarantee:
    """Guarantee on the same values: epsilons, deltas and rhos add up."""
    # An infinite epsilon (no privacy at all) stays infinite.
    endless = any(math.isinf(g.epsilon) for g in guarantees)
    epsilon = sum((Fraction(g.epsilon) for g in guarantees if not endless), Fraction(0))
    delta = sum((Fraction(g.delta) for g in guarantees), Fraction(0))
    composed = reduce(lambda a, b: _merge(a, b, 0.0, 0.0), guarantees)
    if len(guarantees) > 1:
        composed = replace(composed, derivation=(*composed.derivation, "the same values: the epsilons add up"))
    composed = replace(composed, epsilon=math.inf if endless else round_up(epsilon), delta=round_up(delta))
    if len(guarantees) == 1 or all(math.isinf(g.rho) for g in guarantees):
        return replace(composed, rho=guarantees[0].rho)
    rhos = [g.zcdp for g in guarantees]
    rho = math.inf if any(map(math.isinf, rhos)) else round_up(sum(map(Fraction, rhos), Fraction(0)))
    if math.isinf(rho):
        return composed
    step = f"concentrated DP: the rhos add up to {rho:g}"
    epsilon_now = min(composed.epsilon, zcdp_epsilon(rho, composed.delta)) if composed.delta else composed.epsilon
    return replace(composed, epsilon=epsilon_now, rho=rho, derivation=(*composed.derivation, step))


def of_group(member: Guarantee, size: int, epsilon: float, unit: str, adjacency: str, step: str) -> Guarantee:
    """Guarantee for `size` units together, from that of one `member`; `epsilon`: loss of all."""
    loss = member.epsilon
    if math.isfinite(loss) and size * Fraction(loss) > Fraction(epsilon):
        raise ValueError("the members of a group lose more than the group may")
    # P <= e^eps Q + delta, k times: delta (1 + e^eps + ... + e^((k - 1) eps)), of which the last term is the largest.
    most = (size - 1) * loss
    delta = min(1.0, member.delta * size * math.exp(most) * (1.0 + 2.0**-40)) if most < 700.0 else 1.0
    return replace(
        member,
        epsilon=epsilon if math.isfinite(loss) else loss,
        delta=delta if member.delta else 0.0,
        # The loss of zCDP grows with the square (Bun and Steinke 2016, Proposition 1.9).
        rho=round_up(Fraction(member.rho) * size**2) if math.isfinite(member.rho) else member.rho,
        unit=unit,
        adjacency=adjacency,
        rows=None,
        times=None,
        derivation=(*member.derivation, step),
    )


def fraction_of(total: float, parts: int) -> float:
    """Quotient x, rounded down: `parts` * x <= `total`."""
    quotient = total / parts
    return quotient if parts * Fraction(quotient) <= Fraction(total) else math.nextafter(quotient, 0.0)


def remainder(total: float, spent: float) -> float:
    """Budget left, rounded down."""
    rest = total - spent
    return rest if Fraction(rest) + Fraction(spent) <= Fraction(total) else math.nextafter(rest, 0.0)


def round_up(exact: Fraction) -> float:
    """Nearest float not below `exact`."""
    nearest = float(exact)
    return nearest if Fraction(nearest) >= exact else math.nextafter(nearest, math.inf)


#: Digits for e^epsilon <= 2^47 and for weights below 2^64, with a margin.
CONTEXT = Context(prec=80)


def exp_below(exponent: Fraction | float) -> Fraction:
    """Rational below e^exponent by less than 10^-76 of it."""
    ratio = Fraction(exponent)
    argument = CONTEXT.divide(Decimal(ratio.numerator), Decimal(ratio.denominator))
    # A float has a finite decimal expansion, but it may be longer than the context: go down once for the quotient
    # and once for the exponential, each correctly rounded.
    return Fraction(CONTEXT.next_minus(CONTEXT.exp(CONTEXT.next_minus(argument)))) if ratio else Fraction(1)


# The guarantee of a release before a ledger, which is another family's: its releases know this protocol alone.


@runtime_checkable
class Guaranteed(Protocol):
    """Publisher or plan that states its guarantee."""

    @property
    def guarantee(self) -> Guarantee: ...


class Account(Protocol):
    """Method of :class:`fastdp.Ledger` that releases call."""

    def reserve(
        self, guarantee: Guarantee | Guaranteed, *, stream: str, part: str | None = None, mechanism: object = None
    ) -> AbstractContextManager[object]: ...


def check_charge(ledger: Account | None, stream: str | None, part: str | None = None) -> None:
    """ParameterError for a ledger without `stream`, or a `part` alone."""
    if ledger is None:
        if part is not None:
            raise validation.refusal("part", part, "None without a ledger")
        return
    validation.part("ledger", ledger, Account, "fastdp.ledger")
    if stream is None:
        raise validation.refusal("stream", None, "the name of the stream or table, because there is a ledger")


def charge(
    released: Guarantee | Guaranteed,
    ledger: Account | None,
    stream: str | None,
    *,
    part: str | None = None,
    mechanism: object = None,
) -> AbstractContextManager[object]:
    """Reserve the loss of the release in the block, with a ledger."""
    check_charge(ledger, stream, part)
    if ledger is None or stream is None:
        return nullcontext()
    return ledger.reserve(released, stream=stream, part=part, mechanism=mechanism)
