"""The ledger by the number of entries: recording a release, opening the file, checking it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from fastdp.guarantee import Guarantee
from fastdp.ledger import Entry, Ledger
from fastdp.ledger.odometer import Odometer

GUARANTEE = Guarantee(epsilon=1e-6)
#: Where the releases of a stream look: at all of it, each at its own positions, or each at its own part.
SHAPES = ("whole stream", "ranges", "parts")


def release(number: int, shape: str) -> Entry:
    """One that looks where no other one does, unless it looks everywhere."""
    start = 10 * number if shape == "ranges" else None
    stop = None if start is None else start + 10
    part = f"day {number}" if shape == "parts" else None
    return Entry(0, "", "meter", GUARANTEE, part, start, stop, None, "", "spent")


def fill(ledger: Ledger, first: int, stop: int, shape: str = SHAPES[0]) -> None:
    """Record releases in one transaction."""
    with ledger._store.transaction(write=True) as state:
        for number in range(first, stop):
            state.append({"kind": "spend", **release(number, shape).to_line()})
    # Moves them from the log to the file.
    ledger.close()


class Spend:
    """One transaction, synced, beside the sync of one page alone."""

    params = ((100, 10_000, 1_000_000), SHAPES)
    param_names = ("entries_before", "shape")
    timeout = 900
    # One call a setup: every call finds as many entries.
    number = 1
    repeat = 20
    warmup_time = 0.0

    def setup(self, entries: int, shape: str) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "budget"
        self.ledger = Ledger(self.path)
        fill(self.ledger, 0, entries, shape)
        self.page = os.open(Path(self.folder.name) / "page", os.O_WRONLY | os.O_CREAT)
        self.next = entries
        self.time_spend(entries, shape)

    def teardown(self, entries: int, shape: str) -> None:
        self.ledger.close()
        os.close(self.page)
        self.folder.cleanup()

    def time_spend(self, entries: int, shape: str) -> None:
        wanted = release(self.next, shape)
        self.next += 1
        self.ledger.spend(GUARANTEE, stream="meter", part=wanted.part, start=wanted.start, stop=wanted.stop)

    def time_sync_of_a_page(self, entries: int, shape: str) -> None:
        os.pwrite(self.page, bytes(4096), 0)
        os.fdatasync(self.page)

    def time_open(self, entries: int, shape: str) -> None:
        Ledger(self.path).close()


class Verify:
    """All lines, seals and totals."""

    params = ((100, 10_000),)
    param_names = ("entries",)
    timeout = 300

    def setup(self, entries: int) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.ledger = Ledger(Path(self.folder.name) / "budget")
        fill(self.ledger, 0, entries)

    def teardown(self, entries: int) -> None:
        self.ledger.close()
        self.folder.cleanup()

    def time_verify(self, entries: int) -> None:
        self.ledger.verify()


class Overlaps:
    """Totals of ranges of positions that overlap: one more changes each sum that it covers."""

    params = ((1_000, 4_000), ("from the start", "windows"))
    param_names = ("entries", "ranges")
    timeout = 300

    def setup(self, entries: int, ranges: str) -> None:
        first = 30 if ranges == "windows" else entries
        self.odometer = Odometer()
        self.more = self.entry(0, entries)
        for stop in range(1, entries + 1):
            self.odometer.add(self.entry(max(0, stop - first), stop))

    def entry(self, start: int, stop: int) -> Entry:
        return Entry(1, "", "meter", GUARANTEE, None, start, stop, None, "", "spent")

    def time_one_more_and_less(self, entries: int, ranges: str) -> None:
        for times in (1, -1):
            self.odometer.add(self.more, times)
            self.odometer.total("meter")
