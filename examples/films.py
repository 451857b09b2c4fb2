"""Ratings of films: no times, private films, medians and quantiles of a column with zeros and a tail."""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

import fastdp


def ratings(viewers: int, films: int) -> pd.DataFrame:
    """One row a rating: viewer, film, stars, minutes watched; a viewer may have rated a thousand films."""
    rng = np.random.default_rng(3)
    seen = np.minimum(rng.zipf(1.6, viewers), 1_000)
    viewer = np.repeat(np.arange(viewers), seen)
    film = np.minimum(rng.zipf(1.35, viewer.size), films)
    quality = rng.normal(3.4, 0.7, films + 1)
    stars = np.clip(np.round(2 * (quality[film] + rng.normal(0.0, 1.0, viewer.size))) / 2, 0.5, 5.0)
    minutes = np.where(rng.random(viewer.size) < 0.3, 0.0, rng.gamma(4.0, 25.0, viewer.size))
    return pd.DataFrame({"viewer": viewer, "film": film, "stars": stars, "minutes": minutes})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path("films"), help="folder (default films)")
    parser.add_argument("--viewers", type=int, default=30_000)
    parser.add_argument("--films", type=int, default=2_000)
    options = parser.parse_args()
    options.output.mkdir(exist_ok=True)
    frame = ratings(options.viewers, options.films)

    # How many ratings of a viewer count is chosen privately, and so are the films.
    table = fastdp.aggregate(
        frame,
        {"*": "count", "stars": ["mean", "median"], "minutes": ["median", "p90"]},
        by="film",
        keys=fastdp.PrivateKeys(share=0.5),
        unit=fastdp.Person("viewer", rows="auto"),
        bounds={"stars": (0.5, 5.0), "minutes": 600.0},
        epsilon=3.0,
        delta=1e-6,
    )
    print(table)
    shown = table.frame.sort_values("count", ascending=False).head(5)
    print(
        shown[["film", "count", "stars_mean", "stars_median", "minutes_median", "minutes_p90"]].to_string(index=False)
    )
    table.write(options.output / "films.parquet", overwrite=True)


if __name__ == "__main__":
    main()
