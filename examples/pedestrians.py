"""Passers-by at four sensors in Melbourne: patterns of the day and the week, and both changes of the clock.

The file holds counts of an hour. The unit here is one person who passes a sensor once, so each count becomes as many
rows, made in batches on the way: the table of 40 million rows is never in memory.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import fastdp

ZONE = "Australia/Melbourne"


def people(hours: pa.Table) -> pa.RecordBatchReader:
    """One row for each person."""
    schema = hours.select(["time", "sensor"]).schema

    def batches() -> Iterator[pa.RecordBatch]:
        for part in hours.to_batches(max_chunksize=500):
            rows = np.repeat(np.arange(part.num_rows), part["count"].to_numpy())
            yield part.select(["time", "sensor"]).take(pa.array(rows))

    return pa.RecordBatchReader.from_batches(schema, batches())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="folder that holds pedestrians.parquet")
    parser.add_argument("-o", "--output", type=Path, default=Path("pedestrians"), help="folder (default pedestrians)")
    parser.add_argument("--every-nth", type=int, default=1, help="only one person in n, for a quick look (default 1)")
    options = parser.parse_args()
    options.output.mkdir(exist_ok=True)
    hours = pq.read_table(options.data / "pedestrians.parquet")
    hours = hours.set_column(2, "count", pc.divide(hours["count"], options.every_nth))
    sensors = sorted(hours["sensor"].unique().to_pylist())
    given = {"by": "sensor", "keys": sensors, "epsilon": 0.01}

    # Hours of six weeks; summer time ends in their middle, and the pattern of the day stays where the clock shows it.
    weeks = fastdp.Time("time", "1h", start="2015-03-16", stop="2015-04-27", zone=ZONE)
    hourly = fastdp.counts(people(hours), weeks, **given)
    print(hourly)
    hourly.plot(options.output / "hours.png")

    # With a small budget the revised numbers know what a Tuesday at eight looks like.
    estimate, revised = (hourly.std_error(100, 101, revised=which)[0].mean() for which in (False, True))
    print(f"standard error of an hour: {estimate:.0f}, revised {revised:.0f} (by the model)\n")

    # Days run from midnight to midnight by the city's clock, whatever their length.
    year = fastdp.Time("time", "1d", start="2015-01-01", stop="2016-01-01", zone=ZONE)
    daily = fastdp.counts(people(hours), year, **given)
    print(daily)
    daily.plot(options.output / "days.png")
    lengths = np.diff(daily.released.edges) / 3.6e9
    for day in np.flatnonzero(lengths != 24.0).tolist():
        date = daily.frame["window"][day * len(sensors)].as_py()
        print(f"{date:%d %B %Y} has {lengths[day]:.0f} hours, from {date:%H:%M %Z}")


if __name__ == "__main__":
    main()
