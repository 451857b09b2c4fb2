"""Bike trips for each hour and station, and their mean duration by day."""

import argparse
from pathlib import Path

import pandas as pd

import fastdp

ZONE = "America/Los_Angeles"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="folder that holds bike_trips.parquet")
    parser.add_argument("-o", "--output", type=Path, default=Path("bikes"), help="folder (default bikes)")
    parser.add_argument("--rows", type=int, help="only so many trips")
    options = parser.parse_args()
    options.output.mkdir(exist_ok=True)
    trips = pd.read_parquet(options.data / "bike_trips.parquet").iloc[: options.rows]
    # The file's times are in UTC without saying so; windows shall follow the city's clock.
    trips["time"] = trips["time"].dt.tz_localize("UTC").dt.tz_convert(ZONE)

    # Stations stand in the street: which there are is public. A trip is in one hour and one station.
    stations = sorted(trips["start_station"].unique())
    counts = fastdp.counts(trips, time="time", every="1h", by="start_station", keys=stations, epsilon=0.5)
    print(counts)
    counts.plot(options.output / "trips.png")
    busiest = counts.sum(0, len(counts))[0].argmax()
    print(f"most trips began at {stations[busiest]}\n")

    # Durations go up to 200 days, where a bike was lost: a clip is chosen privately below the public bound of a day.
    means = fastdp.means(trips, "duration_s", time="time", every="1d", epsilon=1.0, bound=86_400.0)
    print(means)
    means.plot(options.output / "durations.png")
    print(means.frame[["window", "estimate", "low", "high", "revised"]].head(7).to_string())


if __name__ == "__main__":
    main()
