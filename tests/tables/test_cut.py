"""Shares of clipped rows and dropped persons, warnings; zeros, and the clip of short windows."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastdp
from fastdp.errors import AccuracyWarning

pytest.importorskip("pyarrow", reason="needs the extra tables")

import pyarrow as pa
import pyarrow.parquet as pq

from tests.tables import flat

HOUR = np.timedelta64(1, "h")


def table_of(values: np.ndarray, hours: int = 240, **columns: Any) -> pa.Table:
    """Rows in order of time, alike in every hour."""
    at = np.datetime64("2024-01-01", "s") + (np.arange(values.size) * hours // values.size) * HOUR
    return pa.table({"at": at, "v": values, **columns})


def totals(values: np.ndarray, *, every: str = "1h", hours: int = 240, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AccuracyWarning)
        given = {"epsilon": 1.0, "seed": 1, **options}
        return flat.totals(table_of(values, hours), "v", "at", every, **given)


# The clip.


def test_zeros_do_not_choose_the_clip() -> None:
    """Delays, 52 % of them 0: the clip was the lowest candidate, and the total of a year next to nothing."""
    generator = np.random.default_rng(1)
    values = np.where(generator.random(100_000) < 0.52, 0.0, generator.lognormal(2.3, 1.0, 100_000))
    for epsilon in (0.1, 0.3):
        t = totals(values, hours=24 * 100, epsilon=epsilon, bound=1440.0)
        assert 10.0 < flat.clip(t.released)[1] < 200.0
        assert t.sum(0, 2400)[0] > 0.5 * values.sum()


@pytest.mark.parametrize(
    ("every", "windows", "together"),
    [
        ("1h", 500, 24),
        ("15min", 500, 96),
        ("1h", 10, 10),
        ("6h", 500, 4),
        ("1d", 500, 7),
        ("1d", 3, 3),
        ("36h", 500, 7 * 24 / 36),
        ("1w", 500, 365 / 7),
        ("1mo", 500, 365 / 31),
        ("1y", 50, 1),
        ("1h", 0, 1),
    ],
)
def test_the_clip_is_for_sums_of_longer_spans(every: str, windows: int, together: float) -> None:
    plan = flat.make_plan("totals", epsilon=1.0, every=every, bound=10.0, levels=False).settled(0, windows, 3)
    assert plan.budget.together == pytest.approx(together)
    rest = 0.99 * (1.0 - 0.005 - 0.075 - 0.08)
    alone = 3 * max(1, windows) * np.sqrt(2.0) / rest
    assert plan.budget.rows_above("values") == pytest.approx(
        (alone if windows else np.sqrt(2.0) / rest) / together**0.25
    )


# The shares.


def test_the_share_of_rows_beyond_the_clip_is_released() -> None:
    values = np.random.default_rng(3).exponential(1.0, 50_000)
    for clip, true in ((1.0, np.exp(-1.0)), ((0.5, 2.0), 1.0 - np.exp(-0.5) + np.exp(-2.0)), (1e6, 0.0)):
        found = totals(values, clip=clip).clipped_rows
        # Noise of scale 100 in each of two counts.
        assert found == pytest.approx(true, abs=0.03)
        assert found != true or not true
    chosen = totals(values, bound=100.0)
    assert chosen.clipped_rows == pytest.approx(np.mean(values > flat.clip(chosen.released)[1]), abs=0.03)
    means = flat.means(table_of(values), "v", "at", "1d", epsilon=1.0, clip=1.0, seed=1)
    assert means.clipped_rows == pytest.approx(np.exp(-1.0), abs=0.03)


def test_it_is_unknown_where_rows_are_few_or_nothing_is_clipped() -> None:
    assert totals(np.ones(500), clip=0.5).clipped_rows is None
    assert flat.counts(table_of(np.ones(5000)), "at", "1d", epsilon=1.0, seed=1).clipped_rows is None
    windows = flat.windows("1h", epsilon=1.0, start="2024-01-01", bound=0.5, seed=1)
    windows.add(np.full(50_000, np.datetime64("2024-01-01", "s")), np.ones(50_000))
    closed = windows.advance("2024-01-01T01:00")
    assert (closed.clipped_rows, closed.dropped_rows) == (None, None)


# Warnings.


def caught(call: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", AccuracyWarning)
        call()
    assert {each.filename for each in found} <= {__file__}, "at the line of the caller"
    return [str(each.message) for each in found]


def persons(rows: int, k: int, period: str | None = None) -> list[str]:
    """Of 5,000 persons with 4 rows a day each."""
    who = np.tile(np.repeat(np.arange(5000), rows), 2)
    frame = table_of(np.ones(who.size), hours=48, who=who)
    options = {"who": "who", "contributions": k, "period": period, "start": "2024-01-01", "stop": "2024-01-03"}
    return caught(
        lambda: fastdp.counts(frame, epsilon=1.0, seed=1, **flat.arguments("counts", "at", "1d", **options))
    )


@pytest.mark.parametrize("period", [None, "1d"])
def test_many_persons_cut_are_warned_of(period: str | None) -> None:
    k = 4 if period else 8
    assert persons(4, k, period) == []
    (said,) = persons(4, k // 2, period)
    assert "of the persons' rows are dropped" in said
    assert ("a per= shorter than 1d" in said) is (period == "1d")


def test_a_clip_that_cuts_most_rows_is_warned_of() -> None:
    frame = table_of(np.random.default_rng(4).random(20_000))

    def said(clip: Any) -> list[str]:
        return caught(lambda: fastdp.totals(frame, "v", "at", "1h", epsilon=1.0, clip=clip, seed=1))

    assert said(0.6) == []
    (most,) = said(0.3)
    assert most.startswith(("v: an estimated 69", "v: an estimated 7"))
    assert said((0.2, 0.8)) == []
    assert len(said((0.4, 0.6))) == 1


# Where it is shown.


def test_what_was_cut_is_in_print_frame_file_and_picture(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    who = np.arange(20_000) % 2000
    frame = pd.DataFrame(table_of(np.random.default_rng(5).exponential(1.0, who.size), who=who).to_pydict())
    options = {"who": "who", "contributions": 5, "clip": 1.0, "start": "2024-01-01", "stop": "2024-01-11"}
    with pytest.warns(AccuracyWarning):
        t = flat.totals(frame, "v", "at", "1d", epsilon=5.0, seed=1, **options)
    assert t.clipped_rows == pytest.approx(np.exp(-1.0), abs=0.1)
    assert t.dropped_rows == pytest.approx(0.5, abs=0.1)
    rows, cut_off = (
        f"cut about {t.clipped_rows:.2g} of the rows",
        f"about {t.dropped_rows:.2g} of their rows were dropped",
    )
    assert rows in str(t)
    assert cut_off in str(t)
    assert cut_off in t._repr_html_()
    said = {"clipped_rows": {"v": t.clipped_rows}, "dropped_rows": t.dropped_rows}
    assert said.items() <= t.frame.attrs["fastdp"].items()
    assert said.items() <= json.loads(t.arrow.schema.metadata[b"fastdp"]).items()
    for name in ("t.parquet", "t.csv", "t.npz"):
        t.write(tmp_path / name)
    assert said.items() <= json.loads(pq.read_schema(tmp_path / "t.parquet").metadata[b"fastdp"]).items()
    assert said.items() <= json.loads((tmp_path / "t.csv.json").read_text()).items()
    assert said.items() <= json.loads(str(np.load(tmp_path / "t.npz")["fastdp"])).items()
    caption = t.plot(tmp_path / "t.png").get_xlabel()
    assert rows in caption
    assert f"persons: {cut_off}" in caption


# No private key.


@pytest.mark.parametrize("kind", ["totals", "counts", "means"])
@pytest.mark.parametrize("family", ["pandas", "polars", "pyarrow", "duckdb"])
def test_no_private_key_fails_nothing(kind: str, family: str, tmp_path: Path) -> None:
    pytest.importorskip(family, reason=f"needs {family}")
    frame = table_of(np.ones(240), k=[f"key {i}" for i in range(240)])
    if family != "pyarrow":
        from fastdp.data.frames import in_family

        frame = in_family(frame, family)
    value, bound = ((), {}) if kind == "counts" else (("v",), {"bound": 5.0})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AccuracyWarning)
        options = {"by": "k", "delta": 1e-9, "epsilon": 0.5, "seed": 1, **bound}
        t = getattr(flat, kind)(frame, *value, "at", "1d", **options)
    assert len(t.arrow) == 0
    assert "window" in t.frame.columns if family != "pyarrow" else t.frame.schema.names
    assert "no key was released" in str(t)
    assert "no key was released" in t._repr_html_()
    answer = t.mean if kind == "means" else t.sum
    for revised in (False, True):
        assert answer([0, 1], [3, 2], revised=revised).shape == (2, 0)
        assert t.std_error(0, 3, revised=revised).shape == (1, 0)
        assert [end.shape for end in t.interval(0, 3, revised=revised)] == [(1, 0)] * 2
    for name in ("t.parquet", "t.csv", "t.npz"):
        t.write(tmp_path / name)
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    ax = t.plot(tmp_path / "t.png")
    assert (tmp_path / "t.png").stat().st_size > 1000
    assert [text.get_text() for text in ax.texts] == ["no key was released"]
    t.plot(ax=ax)
