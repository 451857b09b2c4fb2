from __future__ import annotations

import pytest

from fastdp.cli import progress
from fastdp.files.readers import open_source


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".npy", ".npz", ".parquet"])
def test_the_bar_ends_at_the_total(suffix, write_input, values, monkeypatch):
    bars = []

    class Bar(progress.tqdm):
        def close(self) -> None:
            bars.append((self.n, self.total))
            super().close()

    monkeypatch.setattr(progress, "tqdm", Bar)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with open_source(str(write_input(suffix, values)), None, 1000) as source:
        assert sum(chunk.size for chunk in progress.watched(source, quiet=False)) == values.size
        assert bars[0] == (source.total, source.total)
