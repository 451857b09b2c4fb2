"""A mechanism of another package: sums of ten values, each with Laplace noise, spread evenly."""

import numpy as np

from fastdp.noise import discrete_laplace
from fastdp_lab.mechanism import Answer, Mechanism

CELL = 10
#: The 97.5 % point of a standard Laplace distribution.
REACH = np.log(20.0)


def release(values, epsilon, key, *, bound, cell=CELL):
    """One value changes one sum, by at most the bound."""
    starts = np.arange(0, values.size, cell)
    scale = bound / epsilon
    noise = discrete_laplace(scale, starts.size, key=key)
    lengths = np.diff(np.append(starts, values.size))
    spread = np.repeat((np.add.reduceat(values, starts) + noise) / lengths, lengths)

    def interval(first, last):
        """Sums of whole cells, by the union bound, and all that a cut cell may hold."""
        before = np.concatenate([[0.0], np.cumsum(spread)])
        middle = before[last] - before[first]
        reach = scale * REACH * ((last - first) / cell + 2.0) + 2.0 * cell * bound
        return middle - reach, middle + reach

    return Answer(spread, interval)


MECHANISM = Mechanism("stranger's cells", "event", release, "tests of fastdp", {"cell": CELL})
