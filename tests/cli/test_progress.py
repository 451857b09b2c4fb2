from __future__ import annotations

import pytest

from fastdp.cli import terminal
from fastdp.cli.release_command import with_progress
from fastdp.data.readers import open_source


@pytest.fixture
def bars(monkeypatch):
    """Position of each bar when it was closed, and its total."""
    bars = []

    class Bar(terminal.tqdm):
        def close(self) -> None:
            bars.append((self.n, self.total))
            super().close()

    monkeypatch.setattr(terminal, "tqdm", Bar)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    return bars


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".npy", ".npz", ".parquet"])
def test_the_bar_ends_at_the_total(suffix, write_input, values, bars):
    with open_source(str(write_input(suffix, values)), None, 1000) as source:
        assert sum(chunk.size for chunk in with_progress(source, quiet=False)) == values.size
        assert bars[0] == (source.total, source.total)
