"""A web log: visitors, private paths, and Unix times; the list of paths is private too."""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

import fastdp


def log(visitors: int, days: int) -> pd.DataFrame:
    """One row a request, in order of time: seconds since 1970, visitor, path, bytes sent."""
    rng = np.random.default_rng(11)
    requests = np.minimum(rng.zipf(1.7, visitors), 2_000)
    visitor = np.repeat(np.arange(visitors), requests)
    size = visitor.size
    shared = np.minimum(rng.zipf(1.4, size), 400)
    # Some paths are one visitor's own: they name an order, and must not appear.
    path = np.where(rng.random(size) < 0.05, [f"/order/{v}" for v in visitor], [f"/page/{p}" for p in shared])
    hour = rng.choice(24, size, p=np.array([1] * 7 + [3] * 12 + [5] * 4 + [2]) / 65.0)
    seconds = 1_780_272_000 + 86_400 * rng.integers(0, days, size) + 3_600 * hour + rng.integers(0, 3_600, size)
    frame = pd.DataFrame({"ts": seconds, "visitor": visitor, "path": path, "bytes": rng.lognormal(8.5, 1.5, size)})
    return frame.sort_values("ts", ignore_index=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path("web_log"), help="folder (default web_log)")
    parser.add_argument("--visitors", type=int, default=20_000)
    parser.add_argument("--days", type=int, default=14)
    options = parser.parse_args()
    options.output.mkdir(exist_ok=True)
    frame = log(options.visitors, options.days)

    # Requests of a path and day. The unit is a visitor, of whom at most 20 rows count: those of least keyed hash,
    # spread evenly over the days. A path is released if enough visitors asked for it.
    person = fastdp.Person("visitor", rows=20)
    hits = fastdp.aggregate(
        frame,
        {"*": "count", "bytes": "sum"},
        fastdp.Time("ts", "1d", unit="s", zone="Europe/Berlin"),
        by="path",
        keys=fastdp.PrivateKeys(share=0.4),
        unit=person,
        bounds={"bytes": 10_000_000.0},
        epsilon=2.0,
        delta=1e-7,
    )
    print(hits)
    paths = hits.keys["path"]
    print(
        f"{len(paths)} of {frame['path'].nunique():,} paths; orders among them: "
        f"{sum(path.startswith('/order') for path in paths)}"
    )
    hits.write(options.output / "hits.parquet", overwrite=True)

    # All paths together, by hour.
    hourly = fastdp.counts(frame, fastdp.Time("ts", "1h", unit="s", zone="Europe/Berlin"), unit=person, epsilon=1.0)
    print(hourly)
    hourly.plot(options.output / "hourly.png")


if __name__ == "__main__":
    main()
