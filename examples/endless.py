"""Windows of an endless stream, released as they close; run it again after a stop, and it goes on.

Stop it at any moment (Ctrl-C, or a kill): the state file is written before a window is shown, and a second run goes
on from there. The events are made from their position, as a message queue gives them from an offset.
"""

import argparse
import itertools
import secrets
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import fastdp

START = np.datetime64("2024-05-01T00:00:00", "us")
#: Events in a batch, and seconds from one to the next.
BATCH, STEP = 600, 1


def events(position: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Batches of times and sizes from batch ``position`` on, without end; a few events come late."""
    for number in itertools.count(position):
        rng = np.random.default_rng([11, number])
        index = np.arange(number * BATCH, (number + 1) * BATCH) * STEP
        times = START + index.astype("timedelta64[s]") - rng.exponential(20.0, BATCH).astype("timedelta64[s]")
        yield np.maximum(times, START), rng.gamma(2.0, 2.0, BATCH)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--state", type=Path, default=Path("endless.state"), help="default endless.state")
    parser.add_argument("--key", type=Path, default=Path("endless.key"), help="secret that encrypts the state file")
    parser.add_argument("--batches", type=int, help="stop after so many; default: never")
    options = parser.parse_args()
    if not options.key.exists():
        options.key.touch(mode=0o600)
        options.key.write_bytes(secrets.token_bytes(32))
    secret = options.key.read_bytes()
    if options.state.exists():
        windows = fastdp.Windows.load(options.state, secret)
        print(f"going on behind batch {windows.n_seen}", flush=True)
    else:
        # The clock stands a minute behind the latest event; what comes later still is dropped.
        time = fastdp.Time("at", "10min", start="2024-05-01")
        windows = fastdp.Windows({"kwh": "sum"}, time, epsilon=1.0, bounds=20.0, lateness="1min")
        windows.keep(options.state, secret)
    for times, sizes in itertools.islice(events(windows.n_seen), options.batches):
        closed = windows.add(times, sizes)
        for row in closed.frame.to_pylist():
            print(
                f"{row['window']:%H:%M}  {row['estimate']:8.1f}  {row['low']:8.1f} to {row['high']:8.1f}", flush=True
            )
    print(f"{windows.late} late events so far (for the operator, not for publication)")


if __name__ == "__main__":
    main()
