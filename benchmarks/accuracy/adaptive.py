"""Every stream, budget, plan and class of query lengths: one sweep, one table, one picture.

Real streams are used where their files are; synthetic ones (the quantiles and means of ToPS Table 1 in four orders,
and streams that outgrow their hold-out) always.  A short stream is extended by its reverse.  Every cell has seeds of
its own.  The sweep can be interrupted; the same command resumes it.  A mechanism of one's own takes part by an entry
point of the group "fastdp.benchmarks": a :class:`fastdp_lab.sweeps.System`.
"""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Annotated, Any

from benchmarks import shared
from benchmarks.accuracy import plans, report, streams
from benchmarks.shared import DATA, Data
from fastdp.errors import AccuracyWarning
from fastdp_lab import sweeps
from fastdp_lab.baselines.w_event import SCHEMES

EPSILONS = (0.01, 0.05, 0.1, 0.2, 1.0)
#: Longest query of each class.
CLASSES = {"1e3": 1000, "1e4": 10_000, "1e5": 100_000, "2^20": shared.MAX_RANGE}
FLAT = (256, 1024, 4096, 16_384, 65_536)
QUERIES = 400
W = report.W


def mechanisms() -> list[dict[str, Any]]:
    """Tables of a specification: ToPS first, Adaptive, the plans in its way, and mechanisms from elsewhere.

    The name of each whose epsilon is for any w consecutive values says so; of the others it is for one value.
    """
    scale_free = {"part": "ScaleFree"}
    tops = {"system": "publisher", "perturber": {"part": "Hierarchy"}, "smoother": {"part": "Recent"}}
    return [
        {"name": report.TOPS, "threshold": scale_free, **tops},
        {"name": report.PAPER, "system": "tops"},
        *_adaptive(""),
        *({"name": f"flat {length:,}", "system": "flat_blocks", "length": length} for length in FLAT),
        {"name": "shrunken ToPS", "system": "shrunken_tree"},
        {"name": "hold-out mean", "system": "holdout_mean"},
        {"name": "PeGaSus, groups", "system": "pegasus"},
        *({"name": f"dpcrpy {name}", "system": "dpcrpy", "mechanism": name} for name in plans.dpcrpy_mechanisms()),
        *({"name": name, "system": name} for name in plans.entry_points()),
        {"name": "Laplace a value (Uniform, w = 1)", **_scheme("uniform", 1)},
        {"name": "BD, w = 1", **_scheme("distribution", 1)},
        {"name": "BA, w = 1", **_scheme("absorption", 1)},
        {"name": f"{report.TOPS}{report.WINDOW}", "threshold": scale_free, **tops, "contributions": W},
        *_adaptive(report.WINDOW, contributions=W),
        *(
            {"name": f"flat {length:,}{report.WINDOW}", "system": "flat_blocks", "length": length, "contributions": W}
            for length in FLAT
        ),
        *(
            {"name": f"{name}{report.WINDOW}", **_scheme(scheme, W)}
            for name, scheme in zip(("Uniform", "Sample", "BD", "BA"), SCHEMES, strict=True)
        ),
    ]


def _adaptive(ending: str, **options: Any) -> list[dict[str, Any]]:
    return [
        {"name": f"{report.ADAPTIVE}{ending}", "system": "adaptive", **options},
        {"name": f"{report.ONLINE}{ending}", "system": "as_published", **options},
    ]


def _scheme(scheme: str, w: int) -> dict[str, Any]:
    return {"system": "w_event", "scheme": scheme, "contributions": w}


def run(
    *,
    output: Annotated[Path | None, "folder of results; by default a temporary one"] = None,
    repetitions: Annotated[int, "seeds of each cell"] = 12,
    workers: int = 2,
    quick: Annotated[bool, "three streams, two budgets, three repetitions"] = False,
    real: Annotated[bool, "real streams alone"] = False,
    data: Data = DATA,
) -> None:
    """Run the sweep, print tables, draw."""
    # Some hold-outs are short on purpose.
    warnings.simplefilter("ignore", AccuracyWarning)
    plans.register()
    streams.register(data)
    asked = {"kind": "random_ranges", "count": QUERIES}
    table = {
        "name": "accuracy",
        "seed": 1,
        "repetitions": 3 if quick else repetitions,
        "epsilons": list(EPSILONS[1:3] if quick else EPSILONS),
        "metrics": ["mse"],
        "datasets": streams.data_sets(data, quick, real=real),
        "mechanisms": mechanisms(),
        "workloads": [{"name": name, "max_range": longest, **asked} for name, longest in CLASSES.items()],
    }
    with tempfile.TemporaryDirectory() as scratch:
        folder = output or Path(scratch)
        sweeps.run(sweeps.from_table(table), folder, data=data, workers=workers, progress=True)
        report.show(sweeps.load(folder), tuple(CLASSES), folder / "accuracy.png" if output else None)
