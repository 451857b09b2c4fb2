"""The ledger by the number of entries: recording a release with an open one, opening one, checking it again."""

from __future__ import annotations

import tempfile
from pathlib import Path

from fastdp.guarantee import Guarantee
from fastdp.ledger import Ledger


class Spend:
    """A digest of the file, its last line and the sync of one more; an opened ledger checks all lines."""

    params = ((10, 100, 1_000),)
    param_names = ("entries_before",)
    timeout = 300
    # One call a setup: every call finds as many entries.
    number = 1
    repeat = 5
    warmup_time = 0.0

    def setup(self, entries: int) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "budget"
        self.ledger = Ledger(self.path)
        self.guarantee = Guarantee(epsilon=1e-6)
        for _ in range(entries):
            self.time_spend(entries)

    def teardown(self, entries: int) -> None:
        self.folder.cleanup()

    def time_spend(self, entries: int) -> None:
        self.ledger.spend(self.guarantee, stream="meter")

    def time_open(self, entries: int) -> None:
        Ledger(self.path)

    def time_verify(self, entries: int) -> None:
        self.ledger.verify()
