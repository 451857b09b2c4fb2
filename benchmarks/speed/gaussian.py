"""Exact Gaussian draws beside those of NumPy, JAX and OpenDP, and what publishers of Gaussian noise spend time on."""

from collections.abc import Callable
from typing import Any

import numpy as np

import fastdp
from benchmarks.peers import open_dp
from benchmarks.speed.measure import Group
from fastdp.noise.bound_noise import PrefixNoise, draw_cell_noise
from fastdp.noise.key import Key
from fastdp.noise.public_draws import discrete_gaussian
from fastdp.noise.sampler import laplace_distribution
from fastdp.perturbers import Flat, Toeplitz

SIGMAS = {"1": 1.0, "10": 10.0, "10^3": 1e3, "2^22": 2.0**22, "2^36": 2.0**36}
DRAWS = 2**20
OPENDP_DRAWS = 10_000
#: Values of a publisher.
PUBLISHED = 2**18
THETA = 50.0


def gaussian_sampler() -> Group:
    generator, out = np.random.default_rng(1), np.empty(DRAWS)
    tasks: dict[str, Callable[[], Any]] = {
        f"fastdp exact, sigma {label}": lambda sigma=sigma: discrete_gaussian(sigma, DRAWS)
        for label, sigma in SIGMAS.items()
    }
    tasks["NumPy Generator.normal, float (unsafe)"] = lambda: generator.normal(0.0, 2.0**22, DRAWS)
    tasks["NumPy Generator.standard_normal into memory at hand, float (unsafe)"] = lambda: generator.standard_normal(
        out=out
    )
    slow: dict[str, Callable[[], Any]] = {}
    if open_dp.INSTALLED:
        zeros = [0] * OPENDP_DRAWS
        for label in ("2^22", "2^36"):
            measurement = open_dp.discrete_gaussian(SIGMAS[label])
            slow[f"OpenDP exact, sigma {label}"] = lambda measurement=measurement: measurement(zeros)
    items = dict.fromkeys(tasks, DRAWS) | dict.fromkeys(slow, OPENDP_DRAWS)
    return Group("Gaussian sampler", tasks, items=items, slow=slow)


def gaussian_publishers() -> Group:
    """Whole publishers, and bound draws, of cells of a table too."""
    values = np.full(PUBLISHED, 20.0)

    def made(part: Any, delta: float = 1e-6) -> fastdp.StreamPublisher:
        given: dict[str, Any] = {"epsilon": 1.0, "delta": delta, "bound": THETA, "max_range": PUBLISHED}
        return fastdp.StreamPublisher(threshold=THETA, perturber=part, **given)

    publishers = {
        "Toeplitz()": made(Toeplitz()),
        "Flat(noise='gaussian')": made(Flat(noise="gaussian")),
        "Flat()": made(Flat(), 0.0),
    }
    c, part = publishers["Toeplitz()"].composition, Toeplitz()
    distribution = part.leaf_distribution(c.grid.snap(THETA), c.publish_epsilon)
    key = Key.random()
    sums, chain = np.full(PUBLISHED, 10**9), np.arange(4, dtype=np.uint64)
    bound, laplace, rows = PrefixNoise(key), laplace_distribution(2**40), np.arange(2**9, dtype=np.uint64)
    cells = np.full((2, PUBLISHED >> 8, 2**8), 10**9)

    tasks: dict[str, Callable[[], Any]] = {
        **{name: lambda each=each: each.publish(values) for name, each in publishers.items()},
        "bound draws, Gaussian": lambda: bound.draw(sums, distribution, chain, 0),
        "bound draws, Laplace": lambda: bound.draw(sums, laplace, chain, 0),
        "bound cells, one Laplace sum": lambda: draw_cell_noise(cells[:1], [laplace], key, 0, rows.reshape(-1, 2)),
        "bound cells, two Laplace sums": lambda: draw_cell_noise(
            cells, [laplace, laplace], key, 0, rows.reshape(-1, 2)
        ),
    }
    return Group("Gaussian publishers", tasks, items=dict.fromkeys(tasks, PUBLISHED))
