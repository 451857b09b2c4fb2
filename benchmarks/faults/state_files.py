"""State files of other users, of wrong clocks, and of several writers at once."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from benchmarks.faults import processes
from benchmarks.faults.fault import Fault, complaint, contents, drop_root, folder
from benchmarks.faults.online import CHUNK, SECRET, make_tops, values
from fastdp.streams.methods import ToPS

N = 20_000


def state_of_another_user() -> Fault:
    stream = values(N)
    name, who = "state file of another user", "ToPS.load"
    if os.geteuid() != 0:
        return Fault(name, who, "needs two users", True, True, True)
    with folder() as place:
        place.chmod(0o755)
        publisher = make_tops()
        publisher.keep(place / "kept", SECRET)
        first = publisher.publish(stream[: 2 * CHUNK])
        before = contents(place)

        def work() -> str:
            drop_root()
            return complaint(lambda: ToPS.load(place / "kept", SECRET))

        said = processes.run(work).answer
        intact = contents(place) == before
        rest = ToPS.load(place / "kept", SECRET).publish(stream[2 * CHUNK :])
        same = np.array_equal(np.concatenate([first, rest]), make_tops().publish(stream))
        return Fault(name, who, said, intact, bool(same))


def wrong_clock() -> Fault:
    """Files dated decades away: nothing depends on the clock."""
    stream = values(N)
    parts = []
    with folder() as place:
        for number, moment in enumerate((0, 4_102_444_800)):
            publisher = ToPS.load(place / "kept", SECRET) if number else make_tops()
            if not number:
                publisher.keep(place / "kept", SECRET)
            parts.append(publisher.publish(stream[number * CHUNK : (number + 1) * CHUNK]))
            os.utime(place / "kept", (moment, moment))
        parts.append(ToPS.load(place / "kept", SECRET).publish(stream[2 * CHUNK :]))
    same = bool(np.array_equal(np.concatenate(parts), make_tops().publish(stream)))
    return Fault("clock at 1970, then at 2100", "ToPS with keep()", "(no error: nothing reads the clock)", True, same)


def concurrent_writers(writers: int = 4, rounds: int = 6) -> Fault:
    """Processes that all loaded one file publish different values: each time exactly one may."""
    stream = values(N)
    said: set[str] = set()
    published = 0
    with folder() as place:
        publisher = make_tops()
        publisher.keep(place / "kept", SECRET)
        publisher.publish(stream[:CHUNK])
        for _ in range(rounds):
            results = _race(place, writers)
            published += results.count("")
            said |= {result for result in results if result}
        intact = published == rounds and [path.name for path in place.iterdir()] == ["kept"]
        going = ToPS.load(place / "kept", SECRET)
        goes_on = going.n_seen == CHUNK + rounds * 100 and going.publish(stream[:CHUNK]).size == CHUNK
    name = f"{writers} writers of one state file, {rounds} times: {published} published"
    message = next(iter(said), "")
    return Fault(name, "ToPS.load", message if len({text[:20] for text in said}) == 1 else "", intact, goes_on)


def _race(place: Path, writers: int) -> list[str]:
    gate, open_gate = os.pipe()
    pipes, children = [], []
    for number in range(writers):
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.close(open_gate)
            publisher = ToPS.load(place / "kept", SECRET)
            os.write(writing, b".")
            os.read(gate, 1)
            said = complaint(lambda publisher=publisher, n=number: publisher.publish(np.full(100, float(n))))  # type: ignore[misc]
            os.write(writing, said.encode())
            os._exit(0)
        os.close(writing)
        pipes.append(reading)
        children.append(child)
    for pipe in pipes:
        os.read(pipe, 1)
    os.close(gate)
    os.close(open_gate)
    said = []
    for pipe in pipes:
        with os.fdopen(pipe, "rb") as file:
            said.append(file.read().decode())
    for child in children:
        os.waitpid(child, 0)
    return said
