"""Dask: a local cluster of processes, of which one is killed."""

from __future__ import annotations

import os
import signal
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastdp
from fastdp.errors import ParameterError
from tests.engines.scenes import (
    assert_altered_replay,
    counting_job,
    expected,
    make_job,
    make_rows,
    needs,
    replay_altered,
)
from tests.tables import flat
from tests.tables.rows import as_family
from tests.tables.zones import ROWS, ZONES, instants, released

pytestmark = [needs("distributed"), pytest.mark.filterwarnings("ignore"), pytest.mark.slow]


def test_the_same_bytes_with_a_worker_killed(tmp_path: Path, client: Any) -> None:
    from fastdp.engines.dask import DaskShards

    job, rng = make_job(tmp_path), np.random.default_rng(2)
    fleet = job.fleet()
    with DaskShards(job, tmp_path / "state", 4, client=client) as shards:
        for number in range(1, 5):
            ids, values = rng.integers(0, 30, 300), rng.uniform(0.0, 10.0, 300)
            assert shards.publish(number, ids, values)[1].tolist() == fleet.publish(ids, values)[1].tolist()
            if number == 2:
                os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
    # The next test has the cluster as it was.
    client.wait_for_workers(2, timeout=120)


def _forget() -> None:
    """As a worker that starts: no shard is open, so its state is read."""
    from fastdp.engines import dask

    dask._OPEN.clear()


def test_an_altered_replay_meets_independent_noise(tmp_path: Path, client: Any) -> None:
    from fastdp.engines.dask import DaskShards

    with DaskShards(counting_job(tmp_path), tmp_path / "state", 2, client=client) as shards:
        once, again, altered = replay_altered(shards, lambda: client.run(_forget))
    assert len(altered) == 300
    assert_altered_replay(once, again, altered, 100)


def test_streams_of_a_data_frame(tmp_path: Path) -> None:
    import dask
    import dask.dataframe as dd
    import pandas as pd

    from fastdp.engines import dask as engine

    job, rows = make_job(tmp_path), make_rows(500)
    frame: Any = pd.DataFrame(rows, columns=["id", "kwh", "place"]).sample(frac=1.0, random_state=3)
    for parts in (1, 2, 4):
        # Without the cluster of other tests.
        with dask.config.set({"scheduler": "synchronous", "dataframe.shuffle.method": "tasks"}):
            published = engine.release(
                dd.from_pandas(frame, npartitions=parts, sort=False), job, id="id", order="place", value="kwh"
            ).compute()
        assert list(published.columns) == ["id", "place", "published"]
        assert dict(zip(published["place"], published["published"], strict=True)) == expected(job, rows)


@pytest.fixture(scope="module")
def readings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a Parquet file of many row groups, and one of three files."""
    import pandas as pd

    rng = np.random.default_rng(1)
    at = pd.Timestamp("2024-03-29", tz="UTC") + pd.to_timedelta(rng.integers(0, 4 * 86_400, 3000), unit="s")
    meters = [f"m{k}" for k in rng.integers(0, 5, 3000)]
    frame = pd.DataFrame({"at": at, "meter": meters, "kwh": rng.exponential(2.0, 3000)})
    folder = tmp_path_factory.mktemp("readings")
    (folder / "parts").mkdir()
    frame.to_parquet(folder / "whole.parquet", row_group_size=200)
    frame.to_csv(folder / "whole.csv", index=False)
    for number in range(3):
        frame[number::3].to_parquet(folder / "parts" / f"{number}.parquet")
    return folder


TABLE: dict[str, Any] = {
    "epsilon": 1.0,
    "start": "2024-03-29",
    "stop": "2024-04-02",
    "key": bytes(32),
    "zone": "Europe/Paris",
}
TABLE |= {"by": "meter", "keys": ["m3", "m0", "nowhere"]}


@pytest.mark.parametrize("name", ["whole.parquet", "whole.csv", "parts", "frame"])
def test_sums_are_those_of_one_machine(readings: Path, name: str, client: Any) -> None:
    import dask.dataframe as dd

    from fastdp.engines import dask

    path = readings / ("whole.parquet" if name == "frame" else name)
    given = dd.read_parquet(readings / "parts") if name == "frame" else path
    pairs = [
        (flat.totals(path, "kwh", "at", "1h", clip=4.0, **TABLE), flat.totals, ("kwh", "at"), {"clip": 4.0}),
        (flat.counts(path, "at", "1h", **TABLE), flat.counts, ("at",), {}),
    ]
    for one, made, columns, more in pairs:
        table = made(given, *columns, "1h", module=dask, **TABLE, **more)
        assert np.array_equal(table.released.measured[0].steps, one.released.measured[0].steps)
        assert (table.released.keys, table.guarantee) == (one.released.keys, one.guarantee)
        assert table.clipped_rows == one.clipped_rows


@pytest.mark.parametrize(
    ("form", "more"),
    [
        ("%Y-%m-%dT%H:%M:%S", {}),
        ("%d.%m.%Y %H:%M", {"format": "%d.%m.%Y %H:%M"}),
        ("%Y%m%d", {"format": "%Y%m%d"}),
        ("s", {"unit": "s"}),
    ],
)
def test_times_are_read_as_on_one_machine(readings: Path, form: str, more: dict[str, Any], client: Any) -> None:
    """Texts in ISO and other formats, whole numbers such as 20240329, and Unix times with a fraction."""
    import dask.dataframe as dd
    import pandas as pd

    from fastdp.engines import dask

    frame = pd.read_parquet(readings / "whole.parquet")
    clock = frame["at"].dt.tz_localize(None)
    if form == "s":
        frame["at"] = clock.astype("M8[ms]").astype("int64") / 1000.0 + 0.25
    else:
        frame["at"] = clock.dt.strftime(form).astype("int64" if form == "%Y%m%d" else "str")
    time = fastdp.Time("at", "1d", start="2024-03-29", stop="2024-04-02", zone="UTC" if form == "s" else None, **more)
    options: dict[str, Any] = {"epsilon": 1.0, "key": bytes(32), "clip": 4.0}
    one = fastdp.totals(frame, "kwh", time, **options)
    assert fastdp.counts(frame, time, epsilon=1.0, seed=1).sum(0, 4) == pytest.approx(len(frame), abs=30)
    parts = dask.table(dd.from_pandas(frame, npartitions=3))
    assert fastdp.totals(parts, "kwh", time, **options).arrow.equals(one.arrow)


def test_tables_in_every_zone(tmp_path: Path, client: Any) -> None:
    import dask.dataframe as dd

    from fastdp.engines import dask

    clock = as_family(ROWS, "pandas", tmp_path)
    for zone in ZONES:
        wanted = released(clock, zone)
        assert released(dask.table(dd.from_pandas(clock, npartitions=3)), zone) == wanted
        assert released(dask.table(as_family(ROWS, "parquet", tmp_path)), zone) == wanted
        if zone is not None:
            aware = dd.from_pandas(instants(clock, zone), npartitions=3)
            assert released(dask.table(aware), None) == wanted


def test_what_tables_refuse(readings: Path, tmp_path: Path) -> None:
    from fastdp.engines import dask

    path, ledger = readings / "whole.parquet", fastdp.Ledger(tmp_path / "budget")
    paid = {"ledger": ledger, "stream": "t"}
    with pytest.raises(ParameterError, match="on an engine windows, keys and clips are public"):
        flat.totals(path, "kwh", "at", "1h", bound=4.0, module=dask, **TABLE, **paid)
    with pytest.raises(ParameterError, match="column 'when'"):
        flat.counts(path, "when", "1h", module=dask, **TABLE, **paid)
    with pytest.raises(ParameterError, match="frame is a dict"):
        flat.counts({}, "at", "1h", module=dask, **TABLE, **paid)
    assert not ledger.entries()
    flat.counts(path, "at", "1h", module=dask, **TABLE, **paid)
    assert [each.state for each in ledger.entries()] == ["spent"]


def test_workers_get_no_key(readings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shipped objects hold the plan; neither the secret nor a key that follows from it."""
    from cloudpickle import dumps

    from fastdp.engines import dask

    shipped: list[bytes] = []
    delayed = import_module("dask.delayed").Delayed
    compute = delayed.compute

    def spied(self: Any) -> Any:
        shipped.append(dumps(self))
        return compute(self)

    monkeypatch.setattr(delayed, "compute", spied)
    secret = bytes(range(100, 132))
    flat.counts(readings / "whole.parquet", "at", "1h", module=dask, **TABLE | {"key": secret})
    assert shipped
    assert secret not in shipped[0]
    assert b"fastdp.noise.key" not in shipped[0]
