"""``fastdp audit --couplings``: all couplings, and the twins that must fail, line by line."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

from fastdp import validation
from fastdp.auditing.coupled_points import point_cases
from fastdp.auditing.coupled_streams import stream_cases
from fastdp.auditing.coupled_twins import twin_cases
from fastdp.auditing.couplings import Case, Line, run
from fastdp.errors import ParameterError

#: Random instances of each case.
INSTANCES = 100
COLUMNS = ("case", "instances", "outputs compared", "largest cost / epsilon", "failures", "verdict")


def coupling_cases() -> list[Case]:
    """Shipped publishers first, then the broken twins."""
    return [*stream_cases(), *point_cases(), *twin_cases()]


def coupling_lines(only: str | None = None, seed: int | None = None, instances: int = INSTANCES) -> Iterator[Line]:
    """The cases, one after the other.

    Parameters
    ----------
    only : str, optional
        One case; by default all.
    seed : int, optional
        Repeats the instances; by default fresh ones.
    instances : int
        How many of each case.

    Raises
    ------
    ParameterError
        For a name that is not in the catalogue; before any case is run.
    """
    cases = coupling_cases()
    names = [case.name for case in cases]
    if only is not None and only not in names:
        raise ParameterError(f"only = {validation.shown(only)}: expected one of {', '.join(names)}")
    own = secrets.randbits(32) if seed is None else seed
    for case in cases:
        if only in (None, case.name):
            yield run(case, instances, own)


def cells(line: Line) -> tuple[str, ...]:
    """A line as text, by :data:`COLUMNS`; of a case that is not as it should be, what was unequal."""
    unequal = "" if line.as_it_should or not line.unequal else f" ({', '.join(line.unequal)})"
    return (
        line.name,
        f"{line.instances:,}",
        f"{line.compared:,}",
        f"{line.ratio:.4f}",
        f"{line.failures:,}",
        f"{line.verdict}{unequal}",
    )


TEXT = """`fastdp audit --couplings` checks proofs, instance by instance, in place of sampling. A stream and an
adjacent one are published with noise from one table. For the adjacent one, one draw of each noisy sum that holds the
value is shifted, so that the noisy sums are equal, and of a noisy max the winner's draw. Then every public output
must be equal, bit for bit: published values, range sums, `revised`, retrospective sums, nodes, thresholds, block
lengths, trees, counts, `next_count`, synthetic points, guarantees, `repr`, warnings, and what follows after a state
was saved and loaded. An output that is not a function of the noisy sums alone is unequal. The cost is the sum of
shift over scale of all draws, with the scales that the code asked for; it must not exceed epsilon. A split decision
of PrivTree is all that its draw decides, so it costs the exact logarithm of the ratio of its two tails
(`docs/phdstream.md`).

Instances are random and small, with values below, at and above the bound. The streams differ in the hold-out, in the
warm-up, at borders of blocks, trees and batches of noise, or at an end. The noise in the table is 0, or one of few
values up to 3 scales. A case with `broken` in its name must fail in some instance: a threshold that looks at the
value behind its hold-out, blocks as long as true sums would have them, one noise for all trees, values that choose
the next threshold for nothing, the mean of withheld values, a scale of theta less one step, a `repr` with the open
sum, events counted twice, open noise taken back without a new one, log2 T levels, the paper's score, and two counters
with one key. Such a twin fails only where its fault has an effect.

What couplings leave untested: the table takes the place of the sampler, and keys are those of the first noise format,
so the laws of the draws, random words, key derivation and noise bound to the prefix have tests of their own
(`tests/privacy/test_prefix.py` also holds that bound noise enters as noise from a table does). Smooth sensitivity,
local reports and `OfflineOnStream` (no finite epsilon) have no coupling. `OfflineOnBatch` treats the number of points
present as public, and so do its instances. `repeat` is claimed at epsilon for each repetition."""
