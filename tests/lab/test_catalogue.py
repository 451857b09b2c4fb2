"""Public files: parsed from small ones of the same format, fetched through pooch, or a clear way by hand."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import threading
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from fastdp.errors import DataError, FastDPError, ParameterError
from fastdp_lab.datasets import CATALOGUE, catalogue, fetch, parse


def test_transactions_of_fimi(tmp_path) -> None:
    path = tmp_path / "kosarak.dat.gz"
    path.write_bytes(gzip.compress(b"1 2 3\n1 \n4 5 6 7\n\n8\n"))
    assert parse("kosarak", path)["values"].tolist() == [3, 1, 4, 1]


def test_transactions_of_bms_pos_with_commas(tmp_path) -> None:
    path = tmp_path / "BMS-POS.csv"
    path.write_text("1,2,3,\n5,\n5,6\n")
    assert parse("pos", path)["values"].tolist() == [3, 1, 2]
    path.write_text("1,2\n3,x\n")
    with pytest.raises(DataError, match="line 2: expected whole numbers"):
        parse("pos", path)


def test_trips_in_order_of_pickup(tmp_path) -> None:
    arrow = pytest.importorskip("pyarrow", reason="trips are Parquet")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "yellow_tripdata_2019-01.parquet"
    times = [datetime(2019, 1, 1, hour) for hour in (9, 7, 8, 6)]
    table = arrow.table(
        {
            "tpep_pickup_datetime": arrow.array(times, arrow.timestamp("us")),
            "trip_distance": [1.5, 0.29, 3.0, 2.0],
            "fare_amount": [7.0, 3.5, -1.0, 52.0],
        }
    )
    parquet.write_table(table, path)
    found = parse("taxi", path)
    assert found["distance"].tolist() == [200, 29, 150]
    assert found["fare"].tolist() == [5200, 350, 700]
    parquet.write_table(table.drop_columns(["tpep_pickup_datetime"]), path)
    with pytest.raises(DataError, match="expected a Parquet file with moments in tpep_pickup_datetime"):
        parse("taxi", path)


def test_check_ins_in_order_of_time(tmp_path) -> None:
    path = tmp_path / "loc-gowalla_totalCheckins.txt.gz"
    lines = ["0\t2010-10-19T23:55:27Z\t30.2359091167\t-97.7951395833\t22847",
             "7\t2009-03-21T00:00:00Z\t-1.5\t2.25\t1"]  # fmt: skip
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    found = parse("gowalla", path)
    assert found["t"].tolist() == [
        datetime(2009, 3, 21, tzinfo=UTC).timestamp(),
        datetime(2010, 10, 19, 23, 55, 27, tzinfo=UTC).timestamp(),
    ]
    assert found["lat"].tolist() == [-1.5, 30.2359091167]
    assert found["lon"].tolist() == [2.25, -97.7951395833]
    path.write_bytes(gzip.compress(b"0\tyesterday\t1\t2\t3\n"))
    with pytest.raises(DataError, match="numbers in every column"):
        parse("gowalla", path)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Kosarak's file on a server of this machine."""
    pytest.importorskip("pooch", reason="pooch is not installed (pip install 'fastdp-streams[lab]')")
    content = gzip.compress(b"1 2\n3\n")
    served = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments: object) -> None:
            """Quiet."""

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    url = f"http://127.0.0.1:{server.server_port}/data/kosarak.dat.gz"
    monkeypatch.setitem(
        CATALOGUE, "kosarak", replace(CATALOGUE["kosarak"], url=url, sha256=hashlib.sha256(content).hexdigest())
    )
    yield served
    server.shutdown()
    server.server_close()


def test_a_download_is_kept_and_compared_with_the_first(home, tmp_path) -> None:
    path = fetch("kosarak", tmp_path)
    assert path == tmp_path / "kosarak.dat.gz"
    assert catalogue.load("kosarak", folder=tmp_path).tolist() == [2, 1]
    assert fetch("kosarak", tmp_path) == path
    assert len(home) == 1
    path.write_bytes(b"something else")
    with pytest.raises(DataError, match="expected the same file"):
        fetch("kosarak", tmp_path)


def test_a_download_without_encryption_needs_a_known_digest(home, tmp_path, monkeypatch) -> None:
    for sha256, words in ((None, "not encrypted and no SHA-256 of it is known"), ("0" * 64, "no download \\(")):
        monkeypatch.setitem(CATALOGUE, "kosarak", replace(CATALOGUE["kosarak"], sha256=sha256))
        with pytest.raises(DataError, match=words) as found:
            fetch("kosarak", tmp_path)
        assert str(found.value).endswith(f"put it at {tmp_path / 'kosarak.dat.gz'}")
        assert not (tmp_path / "kosarak.dat.gz").exists()
    assert len(home) == 1


def test_without_network_the_manual_way(tmp_path, monkeypatch) -> None:
    pytest.importorskip("pooch", reason="pooch is not installed (pip install 'fastdp-streams[lab]')")
    nowhere = replace(CATALOGUE["kosarak"], url="http://127.0.0.1:9/kosarak.dat.gz", sha256="0" * 64)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setitem(CATALOGUE, "kosarak", nowhere)
    with pytest.raises(DataError) as found:
        fetch("kosarak", tmp_path)
    assert "http://127.0.0.1:9/kosarak.dat.gz: no download (" in str(found.value)
    assert str(found.value).endswith(f"and put it at {tmp_path / 'kosarak.dat.gz'}")
    assert not list(tmp_path.iterdir())


def test_terms_that_forbid_copies_leave_the_manual_way(tmp_path) -> None:
    with pytest.raises(DataError, match=r"BMS-POS.csv: no download, since its terms .* ask for the file") as found:
        fetch("pos", tmp_path)
    assert str(found.value).endswith(f"and put it at {tmp_path / 'BMS-POS.csv'}")
    (tmp_path / "BMS-POS.csv").write_bytes(b"1 2\n3\n")
    assert fetch("pos", tmp_path).exists()


def test_unknown_names_and_columns(tmp_path) -> None:
    with pytest.raises(ParameterError, match="name = 'web': expected one of 'kosarak', 'pos'"):
        fetch("web")
    (tmp_path / "kosarak.dat.gz").write_bytes(gzip.compress(b"1\n"))
    with pytest.raises(FastDPError, match="column = 'clicks': expected one of 'values'"):
        catalogue.load("kosarak", "clicks", tmp_path)


def test_the_cache_folder(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("FASTDP_DATA", str(tmp_path))
    assert catalogue.cache_folder() == tmp_path
    monkeypatch.delenv("FASTDP_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert catalogue.cache_folder() == tmp_path / "cache" / "fastdp"
