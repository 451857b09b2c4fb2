"""``fastdp totals --engine``: the real engines write, byte for byte, what the command writes without them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from fastdp.cli import main
from tests.engines.scenes import needs, write_secret

pytestmark = [needs("pandas", "pyarrow", "narwhals"), pytest.mark.filterwarnings("ignore"), pytest.mark.slow]
OPTIONS = ["--time", "at", "--every", "1h", "--start", "2024-03-29", "--stop", "2024-04-02", "--epsilon", "1"]
KEYS = ["--by", "meter", "--key", "m3", "--key", "nowhere", "--key", "m0", "--quiet"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Times of Los Angeles, and clock times in CSV."""
    import pandas as pd

    made = tmp_path_factory.mktemp("command")
    rng = np.random.default_rng(1)
    clock = pd.Timestamp("2024-03-29") + pd.to_timedelta(rng.integers(0, 4 * 86_400, 2000), unit="s")
    meters = [f"m{k}" for k in rng.integers(0, 5, 2000)]
    frame = pd.DataFrame({"at": clock, "meter": meters, "kwh": rng.exponential(2.0, 2000).round(3)})
    frame.to_csv(made / "clock.csv", index=False)
    frame.assign(at=frame["at"].dt.tz_localize("America/Los_Angeles")).to_parquet(made / "zone.parquet")
    write_secret(made)
    return made


def run(*arguments: object, code: int = 0, **environment: str) -> str:
    """The command in this process; its output."""
    done = CliRunner().invoke(main, [str(each) for each in arguments], env=environment)
    assert done.exit_code == code, done.output
    return done.output


def release(folder: Path, source: str, kind: str, *more: str, **environment: str) -> bytes:
    """The output, as bytes."""
    values = ["--value", "kwh", "--clip", "4"] if kind == "totals" else []
    out = folder / "out.csv"
    given = [kind, folder / source, *OPTIONS, *KEYS, *values, "--key-file", folder / "secret", "-o", out, "--force"]
    run(*given, *more, **environment)
    return out.read_bytes()


@needs("distributed")
@pytest.mark.parametrize("source", ["zone.parquet", "clock.csv"])
def test_dask(folder: Path, source: str, client: Any) -> None:
    alone = release(folder, source, "totals")
    assert release(folder, source, "totals", "--engine", "dask") == alone
    address = client.scheduler.address
    assert release(folder, source, "totals", "--engine", "dask", "--scheduler", address) == alone
    by_name = release(folder, source, "counts", "--engine", "dask", FASTDP_DASK_SCHEDULER=address)
    assert by_name == release(folder, source, "counts")


@needs("pyspark")
@pytest.mark.parametrize(("source", "kind"), [("zone.parquet", "counts"), ("clock.csv", "totals")])
def test_spark(folder: Path, source: str, kind: str, session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # The command sets the zone of the session that is there, and narwhals asks a session for it once.
    monkeypatch.setattr(type(session), "_instantiatedSession", session.newSession())
    assert release(folder, source, kind, "--engine", "spark", "--master", "local[2]") == release(folder, source, kind)


def test_what_the_options_refuse(folder: Path) -> None:
    given = ["counts", folder / "zone.parquet", *OPTIONS, *KEYS, "-o", folder / "refused.csv"]
    assert "--master needs --engine spark" in run(*given, "--engine", "dask", "--master", "local[2]", code=2)
    assert "--scheduler needs --engine dask" in run(*given, "--scheduler", "tcp://host:8786", code=2)
    # The environment may name a cluster that this command does not use.
    run(*given, FASTDP_SPARK_MASTER="spark://nowhere:7077")
    standard = ["counts", "-", *OPTIONS, *KEYS, "--engine", "dask", "-o", folder / "refused.csv", "--force"]
    assert "reads a folder of Parquet files" in run(*standard, code=2)
