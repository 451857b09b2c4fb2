"""The streams of the accuracy benchmark: real ones where their files are, synthetic ones always.

A rule that looks at nothing but a stream's name puts it into one of two halves: constants are tuned on the first, and
the second is reported.  (The first six real streams tuned earlier constants too, MSNBC of the second half included.)
Licences and sources: ``benchmarks/README.md``, "Streams".
"""

import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import shared
from benchmarks.shared import Floats
from fastdp_lab.datasets import TABLE1, hold_out_and_extend, table1
from fastdp_lab.sweeps import GENERATORS, Maker

TUNING, REPORTING = "tuning", "reporting"


class Real(NamedTuple):
    """A real stream: its file, public bound, how it is read, and its name in the reference (empty: it has none)."""

    file: str
    bound: float
    read: Callable[[Path], Floats]
    reference: str = ""

    def there(self, folder: Path) -> bool:
        return (folder / self.file).is_file()

    def values(self, folder: Path) -> Floats:
        """All values, none below 0; ends the program if the file is absent."""
        if not self.there(folder):
            raise SystemExit(f"{self.file} is absent from the folder of real streams (--data FOLDER)")
        return self.read(folder / self.file).clip(0.0)


def _array(path: Path) -> Floats:
    """The values of a .npz file."""
    with np.load(path) as archive:
        return np.asarray(archive["values"], np.float64)


def _column(name: str, path: Path) -> Floats:
    """A column of a Parquet file, in the order of time."""
    import pandas as pd

    return pd.read_parquet(path, columns=["time", name]).sort_values("time", kind="stable")[name].to_numpy(np.float64)


def _seconds(path: Path) -> Floats:
    """The times of a file's rows, sorted, in seconds."""
    import pandas as pd

    if path.suffix == ".parquet":
        return np.sort(
            pd.read_parquet(path, columns=["time"])["time"].to_numpy("datetime64[s]").astype(np.int64)
        ).astype(np.float64)
    return np.sort(pd.read_csv(path)["t"].to_numpy(np.float64)).astype(np.int64).astype(np.float64)


def _per(seconds: int, path: Path) -> Floats:
    """Rows in every interval of so many seconds."""
    numbers = _seconds(path).astype(np.int64) // seconds
    return np.bincount(numbers - numbers.min()).astype(np.float64)


def _gaps(path: Path) -> Floats:
    """Seconds between neighbouring rows."""
    return np.diff(_seconds(path))


_BIKES, _RETAIL = "tables/bike_trips.parquet", "tables/retail_lines.parquet"
REAL = {
    "POS": Real("pos_length.npz", 1657, _array, "pos"),
    "taxi distance": Real("green_taxi_streethail_distance_centimiles.npz", 30_000, _array),
    "MSNBC": Real("msnbc_length.npz", 41_270, _array),
    "DNS": Real("dns_google_1k.npz", 500, _array, "google_1k"),
    "smart meter": Real("smartmeter10_wh.npz", 10_000, _array),
    "web clicks": Real("bmswebview1_length.npz", 497, _array),
    "trip seconds": Real(_BIKES, 86_400, partial(_column, "duration_s")),
    "trips a minute": Real(_BIKES, 1000, partial(_per, 60)),
    "order pence": Real(_RETAIL, 1e7, partial(_column, "amount_pence")),
    "order items": Real(_RETAIL, 1e5, partial(_column, "quantity")),
    "order lines a minute": Real(_RETAIL, 10_000, partial(_per, 60)),
    "people an hour": Real("tables/pedestrians.parquet", 20_000, partial(_column, "count")),
    "pickups a minute": Real("uber_nyc_b02512.csv.gz", 1000, partial(_per, 60)),
    "check-ins an hour": Real("gowalla_sample.csv.gz", 10_000, partial(_per, 3600)),
    "check-in gaps": Real("gowalla_sample.csv.gz", 86_400, _gaps),
}
#: Those that are arrays in files.
ARRAYS = {name: stream for name, stream in REAL.items() if stream.read is _array}
#: Those of ToPS's experiments: the paper's Fare is nearest to the taxi distances, its Kosarak to MSNBC.
STREAMS = {name: REAL[name] for name in ("POS", "DNS", "taxi distance", "smart meter", "MSNBC")}
SYNTHETIC = ("dns", "fare", "kosarak", "pos")
ORDERS = ("iid", "diurnal", "bursty", "drifting")
#: Streams that outgrow their hold-out: by how much, and how.
GROWTHS = {f"{form} of {factor}": (form, factor) for form in ("ramp", "step", "curve") for factor in (10, 100)}


def growing(growth: str, n: int) -> Floats:
    """Gamma values of mean 10 whose scale grows behind the hold-out: straight on, by rates, or after a quarter."""
    form, factor = GROWTHS[growth]
    generator = np.random.default_rng(int.from_bytes(hashlib.sha256(growth.encode()).digest()[:8], "little"))
    place = (np.arange(n) - shared.HOLDOUT).clip(0) / (n - shared.HOLDOUT)
    if form == "curve":
        scale = factor**place
    else:
        scale = 1.0 + (factor - 1.0) * (place if form == "ramp" else place >= 0.25)
    return np.rint(np.minimum(generator.gamma(2.0, 5.0, n) * scale, GROWTH_BOUND))


GROWTH_BOUND = 100_000.0


def half(name: str) -> str:
    """The half that a stream belongs to: the parity of the first byte of its name's SHA-256."""
    return (TUNING, REPORTING)[hashlib.sha256(name.encode()).digest()[0] % 2]


def register(folder: Path) -> None:
    """Make real streams that are no arrays in files, and growing ones, known to sweeps."""
    GENERATORS["real"] = Maker(
        lambda stream: REAL[stream].values(folder), lambda given: {"bound": REAL[given["stream"]].bound}
    )
    GENERATORS["growing"] = Maker(growing, lambda _: {"bound": GROWTH_BOUND})


def names(folder: Path) -> list[str]:
    """Real streams whose files are there."""
    return [name for name, each in REAL.items() if each.there(folder)]


def every(folder: Path) -> list[str]:
    """Real streams whose files are there, and synthetic ones in every order."""
    return [*names(folder), *(f"{stream} {order}" for stream in SYNTHETIC for order in ORDERS)]


def data_sets(folder: Path, quick: bool, *, real: bool = False) -> list[dict[str, Any]]:
    """Tables of a specification."""
    size = {"n": shared.HOLDOUT + shared.MAX_RANGE}
    found: list[dict[str, Any]] = [
        {"name": name, "generator": "real", "stream": name, "published": shared.MAX_RANGE}
        | {"holdout": holdout(REAL[name].values(folder))}
        for name in names(folder)
    ]
    synthetic: list[dict[str, Any]] = [
        {"name": f"{stream} {order}", "generator": "table1", "stream": stream, "order": order} | size
        for stream in SYNTHETIC
        for order in ORDERS
    ]
    synthetic += [{"name": name, "generator": "growing", "growth": name} | size for name in GROWTHS]
    return found[:2] + synthetic[:1] if quick else found + synthetic * (not real)


def holdout(values: Floats) -> int:
    """65,536 values, or a quarter of a stream that has fewer than four times as many."""
    return min(shared.HOLDOUT, values.size // 4)


def extended(name: str, folder: Path) -> tuple[Floats, float, int]:
    """Values of a stream within its bound, 2^20 after the hold-out; the bound; the length of the hold-out."""
    if name in REAL:
        values, bound = REAL[name].values(folder), REAL[name].bound
        m = holdout(values)
        return hold_out_and_extend(np.minimum(values, bound), m, shared.MAX_RANGE), bound, m
    if name in GROWTHS:
        return growing(name, shared.HOLDOUT + shared.MAX_RANGE), GROWTH_BOUND, shared.HOLDOUT
    row, order = name.rsplit(" ", 1)
    values = table1(row, n=shared.HOLDOUT + shared.MAX_RANGE, order=order).astype(np.float64)
    return values, float(TABLE1[row].bound), shared.HOLDOUT
