from __future__ import annotations

import pytest

from fastdp.cli import release_run
from fastdp.data.readers import open_source


@pytest.fixture
def bars(monkeypatch):
    """Where each bar was when it was closed, and its total."""
    bars = []

    class Bar(release_run.tqdm):
        def close(self) -> None:
            bars.append((self.n, self.total))
            super().close()

    monkeypatch.setattr(release_run, "tqdm", Bar)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    return bars


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".npy", ".npz", ".parquet"])
def test_the_bar_ends_at_the_total(suffix, write_input, values, bars):
    with open_source(str(write_input(suffix, values)), None, 1000) as source:
        assert sum(chunk.size for chunk in release_run.watched(source, quiet=False)) == values.size
        assert bars[0] == (source.total, source.total)


def test_the_bar_ends_at_the_number_of_batches(bars):
    assert list(release_run.counted(5, "batches", "out", quiet=False)) == [0, 1, 2, 3, 4]
    assert bars[0] == (5, 5)
