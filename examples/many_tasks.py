"""Tasks that may run again: one day of 60 meters, released by two workers, charged once, equal for any partition."""

import multiprocessing
import os
import secrets
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

import fastdp
from fastdp.noise import Key
from fastdp.thresholds import NoisyMax

DAY = "2026-11-21"
# All of this is public and the same for every task.
RELEASE = {
    "epsilon": 1.0,
    "bound": 5.0,
    "threshold": NoisyMax(step=0.01),
    "holdout": 100,
    "max_range": 1024,
}


def read_stored(folder, ids):
    """The streams with these numbers, from files that do not change any more."""
    return [np.load(folder / f"{number}.npy") for number in ids]


def task(folder, key_file, ids):
    """One partition, on a worker; may run any number of times."""
    key = Key.from_bytes(key_file.read_bytes()).derive("meters", DAY)
    released = fastdp.ToPS(**RELEASE, key=key).release_many(read_stored(folder, ids), ids=ids)
    return {number: one.values.tobytes() for number, one in zip(ids, released, strict=True)}


def run(partitions, folder, key_file):
    """All partitions, on two workers."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=spawn) as pool:
        running = [pool.submit(task, folder, key_file, ids) for ids in partitions]
        return {number: values for future in running for number, values in future.result().items()}


def main():
    folder = Path(tempfile.mkdtemp())
    key_file = folder / "key"
    os.close(os.open(key_file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    key_file.write_bytes(secrets.token_bytes(32))
    generator = np.random.default_rng(1)
    for number in range(60):
        np.save(folder / f"{number}.npy", generator.gamma(2.0, 0.2, 400 + 10 * number))

    # On the driver: what one value costs is what the whole release costs, because each value is in one stream.
    promise = fastdp.ToPS(**RELEASE).guarantee
    ledger = fastdp.Ledger(folder / "budget", limit_epsilon=1.0)
    with ledger.reserve(promise, stream="meters", part=DAY):
        outputs = run([range(25), range(25, 60)], folder, key_file)

    retried = task(folder, key_file, range(25, 60))
    if any(outputs[number] != values for number, values in retried.items()):
        raise SystemExit("a retry differs")
    others = run([range(k, 60, 7) for k in range(7)], folder, key_file)
    if outputs != others:
        raise SystemExit("the output follows the partition")
    print(f"{len(outputs)} streams, spent: epsilon = {ledger.spent('meters').epsilon}")


if __name__ == "__main__":
    main()
