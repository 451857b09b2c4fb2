"""Hourly totals of smart meters: from a file, and for each household from a data frame.

The readings are synthetic: one row for each household and half hour, in kWh.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

import fastdp

ZONE = "Europe/London"


def readings(households: int, days: int) -> pd.DataFrame:
    """Half-hour readings: a morning and an evening peak, quiet nights, and cars that charge now and then."""
    rng = np.random.default_rng(7)
    times = pd.date_range("2024-01-08", periods=48 * days, freq="30min", tz=ZONE)
    hour = times.hour + times.minute / 60.0
    shape = 0.3 + 0.9 * np.exp(-(((hour - 8.0) / 1.5) ** 2)) + 1.7 * np.exp(-(((hour - 19.0) / 2.5) ** 2))
    shape = shape * np.where(times.day_of_week >= 5, 1.2, 1.0)
    size = rng.gamma(3.0, 0.14, households)
    kwh = size[None, :] * np.asarray(shape)[:, None] * rng.gamma(1.5, 1 / 1.5, (times.size, households))
    kwh += 5.5 * (rng.random(kwh.shape) < 0.01)
    names = np.array([f"house {number:02}" for number in range(households)])
    return pd.DataFrame(
        {
            "timestamp": times.repeat(households),
            "household_id": np.tile(names, times.size),
            "kwh": np.minimum(kwh, 10.0).ravel(),
        }
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path("households"), help="folder (default households)")
    parser.add_argument("--households", type=int, default=60)
    parser.add_argument("--days", type=int, default=120)
    options = parser.parse_args()
    options.output.mkdir(exist_ok=True)
    frame = readings(options.households, options.days)
    file = options.output / "readings.parquet"
    frame.to_parquet(file)

    # All households together, from the file: one reading of half an hour changes every output
    # by a factor of at most e. The bound is what a fuse allows.
    total = fastdp.totals(file, "kwh", time="timestamp", every="1h", epsilon=1.0, bound=10.0)
    print(total)
    total.plot(options.output / "total.png")
    total.write(options.output / "total.parquet", overwrite=True)

    # A sum over the first week, with its interval.
    week = min(168, len(total))
    low, high = total.interval(0, week)
    print(f"first {week} hours: {total.sum(0, week)[0]:,.0f} kWh, 95 % interval {low[0]:,.0f} to {high[0]:,.0f}\n")

    # Each household by the day, from the data frame. Which households there are is public.
    houses = sorted(frame["household_id"].unique())
    each = {"by": "household_id", "keys": houses}
    daily = fastdp.totals(frame, "kwh", time="timestamp", every="1d", **each, epsilon=1.0, bound=10.0)
    print(daily)
    print(daily.frame.head(3).to_string(), "\n")

    # A stronger promise: all 48 readings of a household's day are hidden together, which needs 48 times the noise.
    day = fastdp.Person("household_id", rows=48, per="1d")
    strong = fastdp.totals(frame, "kwh", time="timestamp", every="1w", unit=day, epsilon=1.0, clip=2.0)
    print(strong)


if __name__ == "__main__":
    main()
