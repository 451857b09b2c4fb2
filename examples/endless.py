"""Requests of an endless log, by page: nobody listed the pages, and windows are released as they close.

Stop it at any moment (Ctrl-C, or a kill): the state file is written before a window is shown, and a second run goes
on from there. The requests are made from their position, as a message queue gives them from an offset.
"""

import argparse
import itertools
import secrets
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import fastdp

START = np.datetime64("2024-05-01T00:00:00", "s")
#: Requests in a batch, and seconds from one to the next.
BATCH, STEP = 5_000, 2


def requests(position: int) -> Iterator[tuple[list[str], list[str], list[int]]]:
    """Batches of times (texts, a few out of order), pages and visitors from batch ``position`` on, without end."""
    for number in itertools.count(position):
        rng = np.random.default_rng([11, number])
        seconds = (np.arange(BATCH) + number * BATCH) * STEP
        late = np.where(rng.random(BATCH) < 0.05, rng.exponential(300.0, BATCH), 0.0).astype(np.int64)
        times = START + np.maximum(seconds - late, 0).astype("timedelta64[s]")
        visitors = rng.integers(0, 8_000, BATCH)
        # Every 20th request is one crawler's; some pages are one visitor's own, and name an order.
        visitors[::20] = -1
        pages = [f"/page/{page}" for page in np.minimum(rng.zipf(1.5, BATCH), 500)]
        for i in np.flatnonzero(rng.random(BATCH) < 0.03):
            pages[i] = f"/order/{visitors[i]}"
        for i in range(0, BATCH, 20):
            pages[i] = f"/crawl/{i % 400}"
        yield np.datetime_as_string(times).tolist(), pages, visitors.tolist()


def true_counts(batches: int) -> Counter[tuple[str, str]]:
    """Requests by window and page: what nobody but this script may know."""
    found: Counter[tuple[str, str]] = Counter()
    for times, pages, _ in itertools.islice(requests(0), batches):
        found.update(
            (f"{time[:11]}{int(time[11:13]) // 6 * 6:02}", page) for time, page in zip(times, pages, strict=True)
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--state", type=Path, default=Path("endless.state"), help="default endless.state")
    parser.add_argument("--key", type=Path, default=Path("endless.key"), help="secret that encrypts the state file")
    parser.add_argument("--batches", type=int, default=20, help="stop after so many")
    options = parser.parse_args()
    if not options.key.exists():
        options.key.touch(mode=0o600)
        options.key.write_bytes(secrets.token_bytes(32))
    secret = options.key.read_bytes()
    if options.state.exists():
        windows = fastdp.Windows.load(options.state, secret)
        print(f"going on behind batch {windows.n_seen // BATCH}", flush=True)
    else:
        # The clock stands a minute behind the latest request; what comes later still is dropped. Of a visitor's
        # day at most 16 requests count, 4 in each window; a page appears once enough visitors asked for it.
        windows = fastdp.Windows(
            {"*": "count"},
            fastdp.Time("at", "6h", start="2024-05-01"),
            by="page",
            keys=fastdp.PrivateKeys(),
            unit=fastdp.Person("visitor", rows=16, per="1d", per_window=4),
            epsilon=2.0,
            delta=1e-8,
            lateness="1min",
        )
        windows.keep(options.state, secret)
    position = windows.n_seen // BATCH
    truth = true_counts(position + options.batches)
    for times, pages, visitors in itertools.islice(requests(position), options.batches):
        for row in windows.add(times, keys=pages, persons=visitors).frame.to_pylist():
            window = f"{row['window']:%Y-%m-%dT%H}"
            print(
                f"{window}  {row['page']:12} {row['estimate']:8.0f}  at least {row['low']:8.0f}  "
                f"(true: {truth[window, row['page']]:5})",
                flush=True,
            )
    pages = {page for _, page in truth}
    print(f"{len(pages):,} pages so far; {windows.late} late requests (both for the operator alone)")


if __name__ == "__main__":
    main()
