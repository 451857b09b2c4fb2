"""Hospital admissions by region and town, with totals that add up: one call, three levels."""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

import fastdp

REGIONS, TOWNS = 8, 12


def admissions(rows: int) -> pd.DataFrame:
    """One row an admission: a date as text, patient, region, town, nights."""
    rng = np.random.default_rng(5)
    region = rng.choice(REGIONS, rows, p=np.arange(REGIONS, 0, -1) / 36.0)
    town = np.minimum(rng.geometric(0.25, rows) - 1, TOWNS - 1)
    day = np.datetime64("2025-01-01") + np.sort(rng.integers(0, 365, rows)).astype("timedelta64[D]")
    return pd.DataFrame(
        {
            "admitted": np.char.replace(day.astype(str), "-", ""),
            "patient": rng.integers(0, rows // 2, rows),
            "region": [f"region {r + 1}" for r in region],
            "town": [f"town {r + 1}.{t + 1}" for r, t in zip(region, town, strict=True)],
            "nights": rng.negative_binomial(2, 0.25, rows),
        }
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path("hospital"), help="folder (default hospital)")
    parser.add_argument("--rows", type=int, default=60_000)
    options = parser.parse_args()
    options.output.mkdir(exist_ok=True)
    frame = admissions(options.rows)

    # Which towns there are is public. With levels=True regions and the country are measured too, and a town's
    # numbers add up to its region's.
    places = [(f"region {r}", f"town {r}.{t}") for r in range(1, REGIONS + 1) for t in range(1, TOWNS + 1)]
    table = fastdp.aggregate(
        frame,
        {"*": "count", "nights": ["sum", "mean"]},
        fastdp.Time("admitted", "1mo", format="%Y%m%d", start="2025-01-01", stop="2026-01-01"),
        by=["region", "town"],
        keys=places,
        unit=fastdp.Person("patient", rows=6),
        bounds={"nights": 60.0},
        levels=True,
        epsilon=1.0,
    )
    print(table)
    year = table["count"]
    for depth, name in enumerate(("country", "region", "town")):
        level = year.level(depth)
        print(f"{name:>8}: standard error of a year's count {float(np.ravel(level.std_error(0, 12))[0]):,.0f}")
    # Whole numbers of at least 0 whose parts add up to their totals: what a yearbook prints.
    whole = table["count"].whole_numbers()
    print(whole.head(4).to_string())
    table["nights_mean"].level(0).plot(options.output / "nights.png")
    whole.to_csv(options.output / "admissions.csv", index=False)


if __name__ == "__main__":
    main()
