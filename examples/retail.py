"""Order lines of a shop: the unit is a customer's day, and rare countries stay private."""

import argparse
from pathlib import Path

import polars as pl

import fastdp


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="folder that holds retail_lines.parquet")
    parser.add_argument("-o", "--output", type=Path, default=Path("retail"), help="folder (default retail)")
    parser.add_argument("--rows", type=int, default=None, help="only so many lines")
    options = parser.parse_args()
    options.output.mkdir(exist_ok=True)
    lines = pl.scan_parquet(options.data / "retail_lines.parquet")
    lines = lines if options.rows is None else lines.head(options.rows)

    # A customer's day may hold hundreds of lines. At most k of them count, so that none of the days shows; lines
    # without a customer are dropped. A larger k drops fewer lines and needs more noise.
    for k in (5, 20, 100):
        unit = fastdp.Person("customer", rows=k, per="1d")
        orders = fastdp.counts(lines, fastdp.Time("time", "1d", missing="drop"), unit=unit, epsilon=1.0)
        error, all_days = orders.std_error(0, 1)[0], orders.sum(0, len(orders))[0]
        dropped = "an unknown share" if orders.dropped_rows is None else f"{orders.dropped_rows:.0%}"
        print(f"k = {k:3}: {all_days:9,.0f} lines, {dropped} of them dropped; standard error of a day {error:.0f}")
    print(f"{orders.guarantee}\n")

    # Which countries the customers come from is private: a country of a few customers is not released. Returns are
    # negative amounts, so values have two bounds.
    amounts = fastdp.totals(
        lines,
        "amount_pence",
        fastdp.Time("time", "1w", missing="drop"),
        by="country",
        unit=fastdp.Person("customer", rows=20, per="1d"),
        epsilon=2.0,
        delta=1e-6,
        bound=(-5_000.0, 20_000.0),
    )
    print(amounts)
    print("countries:", ", ".join(amounts.released.keys["country"]))
    if len(amounts.released.keys["country"]):
        amounts.plot(options.output / "amounts.png")
    amounts.write(options.output / "amounts.csv", overwrite=True)


if __name__ == "__main__":
    main()
