"""Windows of tables: one row, one person with rows in two windows, a mean, and the keys of a table."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdp.errors import AccuracyWarning
from fastdp.randomness.key import Key
from fastdp.tables.columns import KeyTable
from fastdp.tables.functions import counts
from fastdp.tables.parameters import make_plan
from fastdp.tables.quantity import release
from fastdp.tables.windows import Windows
from fastdp_lab.audit.catalogue.case import FAST, SLOW, Case, ManyRuns, OneRun, one_run
from fastdp_lab.audit.catalogue.sums import DELTA

#: Day of the row, its value and its person.
Row = tuple[int, float, str]
START, STOP = "2024-05-01", "2024-05-03"


def make_windows(key: Key, **options: Any) -> Windows:
    """Two days."""
    return Windows("1d", start=START, resolution=1.0, key=key, **options)


def released(fresh: Callable[[], Windows], rows: Sequence[Row]) -> NDArray[np.float64]:
    """All noisy sums of both days, in steps."""
    windows, who = fresh(), fresh().machine.who  # type: ignore[attr-defined]
    if rows:
        days, values, persons = zip(*rows, strict=True)
        times = np.datetime64(START) + np.array(days)
        counts = windows.machine.kind == "counts"  # type: ignore[attr-defined]
        windows.add(times, None if counts else values, persons=persons if who else None)
    sums = windows.advance(STOP).sums
    return np.concatenate([noisy.steps.ravel() for noisy in sums.columns.values()]).astype(np.float64)


def both_days(runs: NDArray[np.float64]) -> NDArray[np.float64]:
    """What tells a person of two days best."""
    sums: NDArray[np.float64] = runs.sum(axis=1)
    return sums


def keys_of_a_table(epsilon: float) -> OneRun:
    """How many keys are released, and the first day's count of the last one: rows are pairs of person and key."""
    options: dict[str, Any] = {
        "who": "who",
        "by": "key",
        "epsilon": epsilon,
        "start": START,
        "stop": STOP,
        "period": "1w",
    }
    plan = make_plan("counts", every="1d", keys="public", **options)

    def see(fresh: Callable[[], Key], rows: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        import pyarrow

        persons, keys = zip(*rows, strict=True)
        days = np.full(len(rows), START, "M8[s]")
        table = pyarrow.table({"at": days, "who": persons, "key": keys})
        with warnings.catch_warnings():
            # Most persons are cut, on purpose.
            warnings.simplefilter("ignore", AccuracyWarning)
            steps = counts(table, "at", "1d", keys="public", key=fresh(), **options).sums.columns["count"].steps
        return np.array([steps.shape[1], steps[0, -1]], np.float64)

    return OneRun(plan.guarantee(simulated=False), lambda key: key, see)


def gaussian(epsilon: float) -> ManyRuns:
    """Totals of a person's two days, with a delta: one long row of windows, two of them a run."""
    plan = make_plan(
        "totals",
        every="1d",
        clip=4.0,
        resolution=1.0,
        who="who",
        contributions=2,
        per_window=1,
        period="1w",
        epsilon=epsilon,
        delta=DELTA,
        noise="gaussian",
    )
    quantity = plan.quantities()[0]

    def draw(data: Sequence[int], trials: int, key: Key) -> NDArray[np.float64]:
        sums = np.tile(np.asarray(data, np.int64), trials).reshape(1, -1, 1)
        released = release([quantity], sums, key, 0, KeyTable((), []).digests)[quantity.name]
        return released.steps.reshape(trials, -1).astype(np.float64)

    return ManyRuns(plan.guarantee(simulated=False), draw)


def tables(epsilon: float) -> list[Case]:
    """Of :class:`fastdp.Windows`, whose noise is that of ``fastdp.totals``; none where its packages are missing."""
    if find_spec("pyarrow") is None or find_spec("narwhals") is None:
        return []

    def run(**options: Any) -> OneRun:
        return one_run(partial(make_windows, epsilon=epsilon, **options), released)

    others: list[Row] = [(0, 1.0, "b"), (1, 2.0, "c")]
    days: list[Row] = [(0, 4.0, "a"), (1, 4.0, "a")]
    # The third row of the person is dropped, and those of others stay.
    further: list[Row] = [*days, (1, 4.0, "a")]
    # All other rows with the second key are dropped, so that of the rows that count only this person's has it.
    keyed = [(person, key) for person in "bc" for key in "xy"]
    person = {"contributions": 2, "per_window": 1, "period": "2d", "who": True}
    return [
        Case("totals", run(bound=4.0), [*others, (0, 4.0, "a")], others, SLOW),
        Case("totals-persons", run(bound=4.0, **person), [*further, *others], others, SLOW),
        Case("counts", run(counts=True), [*others, (0, 0.0, "a")], others, SLOW),
        Case("totals-gaussian", gaussian(epsilon), [4, 4], [0, 0], FAST, (both_days,)),
        Case("counts-public-keys", keys_of_a_table(epsilon), [*keyed, ("a", "y")], keyed, SLOW),
        Case("means", run(bound=4.0, means=True), [*others, (0, 4.0, "a")], others, SLOW),
    ]
