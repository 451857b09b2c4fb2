"""Simple baselines: flat blocks, the mean of the hold-out, and the tree of ToPS shrunken afterwards.

They answer from everything released, like the revised stream of Adaptive, and choose theta by the same rule.  Noise
that they draw themselves is floating-point Laplace, which is NOT safe to release; here it serves comparisons alone.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.shared import prefix_sums
from fastdp import validation
from fastdp.noise.key import Key
from fastdp.perturbers import Hierarchy
from fastdp.smoothers import Recent
from fastdp.streams.methods import Adaptive
from fastdp.streams.publisher import StreamPublisher
from fastdp.thresholds import Fixed, ScaleFree
from fastdp_lab.sweeps import SYSTEMS, RunResult, Setting, System
from fastdp_lab.sweeps.systems import Floats, Indices, Prepare, Run

#: Noisy prefix sums, by position.
Released = Callable[[Indices], Floats]


@dataclass(frozen=True)
class Given:
    """Inputs of a plan: its parameters, the stream, theta, and noise of this run."""

    parameters: dict[str, Any]
    setting: Setting
    values: Floats
    theta: float
    generator: np.random.Generator
    key: Key

    @property
    def scale(self) -> float:
        """theta / epsilon."""
        return self.theta / self.setting.epsilon

    @property
    def held(self) -> Floats:
        """The hold-out, clipped."""
        return np.clip(self.values[: self.setting.holdout], 0.0, self.theta)

    @property
    def body(self) -> Floats:
        """The published part, clipped."""
        return np.clip(self.values[self.setting.holdout :], 0.0, self.theta)


class Plan(NamedTuple):
    """A mechanism that is no publisher: theta as Adaptive chooses it, then a plan of its own."""

    release: Callable[[Given], Released]
    accepted: tuple[str, ...] = ()

    def build(self, setting: Setting, **parameters: Any) -> Prepare:
        """As :class:`fastdp_lab.sweeps.System` has it."""
        if "length" in self.accepted:
            validation.integer("length", parameters.get("length"), 1)
        return partial(self.prepare, parameters, setting)

    def prepare(self, parameters: dict[str, Any], setting: Setting, values: Floats) -> Run:
        like = Adaptive(setting.epsilon, setting.bound, setting.holdout, setting.max_range, seed=0)
        # Adaptive keeps some of the hold-out for its warm-up; here all of it chooses theta.
        chooser = ScaleFree().start(replace(like.composition.task, holdout=setting.holdout))
        chooser.observe(values[: setting.holdout])

        def run(key: Key) -> RunResult:
            theta = chooser.choose(key)
            generator = np.random.default_rng(int.from_bytes(key.derive("plan").reveal()[:8], "little"))
            released = self.release(Given(parameters, setting, values, theta, generator, key))
            return RunResult(lambda starts, stops: released(stops) - released(starts), theta)

        return run


def _blocks(body: Floats, length: int, noisy: Callable[[Floats], Floats]) -> Released:
    """Sums of blocks of this length, made private by the function and spread evenly."""
    edges = np.arange(0, body.size + 1, length)
    sums = np.add.reduceat(body[: edges[-1]], edges[:-1]) if edges.size > 1 else np.empty(0)
    return _spread(edges, noisy(sums), body.size)


def _spread(edges: Indices, sums: Floats, size: int) -> Released:
    """Prefix sums of block sums spread evenly; behind the last block its mean goes on."""
    running = prefix_sums(sums)
    if edges[-1] < size:
        mean = sums[-1] / (edges[-1] - edges[-2]) if sums.size else 0.0
        edges, running = np.append(edges, size), np.append(running, running[-1] + mean * (size - edges[-1]))
    return lambda stops: np.interp(stops, edges, running)


def flat_blocks(given: Given) -> Released:
    """One Laplace sum for each block of g values, with the whole epsilon."""
    draw = given.generator.laplace
    return _blocks(given.body, int(given.parameters["length"]), lambda sums: sums + draw(0.0, given.scale, sums.size))


def holdout_mean(given: Given) -> Released:
    """The mean of the hold-out, with a quarter of its budget, times the length."""
    true = float(given.held.mean())
    mean = true + given.generator.laplace(0.0, 4.0 * given.scale / given.setting.holdout)
    return lambda stops: mean * stops


def shrunken_tree(given: Given) -> Released:
    """The tree that ToPS releases, its children drawn towards their parents as far as their noise says."""
    setting, body = given.setting, given.body
    parts = {"threshold": Fixed(given.theta), "perturber": Hierarchy(), "smoother": Recent()}
    public = {"epsilon": setting.epsilon, "bound": setting.bound, "max_range": setting.max_range}
    publisher = StreamPublisher(**parts, **public, key=given.key)
    plan, published = publisher.plan, publisher.publish(body)
    edges = np.arange(0, body.size + 1, plan.block)
    leaves = np.add.reduceat(published[: edges[-1]], edges[:-1])
    shrunken = shrink(leaves, plan.fan_out, plan.levels, 2.0 * (plan.levels * given.scale) ** 2)
    return _spread(edges, shrunken, body.size)


PLANS = {
    "flat_blocks": Plan(flat_blocks, ("length",)),
    "holdout_mean": Plan(holdout_mean),
    "shrunken_tree": Plan(shrunken_tree),
}


def shrink(leaves: Floats, fan_out: int, levels: int, variance: float) -> Floats:
    """Positive-part James-Stein on a tree: distances from siblings' means, times signal / (signal + noise).

    The noise of the distance follows from least squares: a node of height l has variance (b^l - b^(l-1)) / (b^l - 1)
    of its own and its descendants' together.
    """
    sums: list[NDArray[np.float64]] = [leaves]
    for _ in range(levels - 1):
        whole = sums[-1][: sums[-1].size // fan_out * fan_out]
        if not whole.size:
            break
        sums.append(whole.reshape(-1, fan_out).sum(axis=1))
    above = sums[-1]
    for height in range(len(sums) - 1, 0, -1):
        below = sums[height - 1]
        whole = below[: above.size * fan_out].reshape(-1, fan_out)
        distance = whole - whole.mean(axis=1, keepdims=True)
        power = fan_out**height
        noise = variance * (power - power / fan_out) / (power - 1.0)
        signal = max(0.0, float((distance**2).mean()) / (1.0 - 1.0 / fan_out) - noise)
        children = above[:, None] / fan_out + signal / (signal + noise) * distance
        above = np.concatenate([children.ravel(), below[above.size * fan_out :]])
    return above


def _online(setting: Setting, **parameters: Any) -> Prepare:
    """Adaptive, which answers from the values that it published."""

    def publisher(key: Key) -> Adaptive:
        return Adaptive(setting.epsilon, setting.bound, setting.holdout, setting.max_range, key=key, **parameters)

    def run(values: Floats, key: Key) -> RunResult:
        release = publisher(key).release(values)
        return RunResult(release.sum, release.threshold)

    publisher(Key.from_seed(0))
    return lambda values: partial(run, values)


def register() -> None:
    """Make the plans known to sweeps."""
    SYSTEMS.update({name: System(plan.build, plan.accepted) for name, plan in PLANS.items()})
    SYSTEMS["as_published"] = System(_online, SYSTEMS["adaptive"].accepted)
