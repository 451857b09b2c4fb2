"""All noisy numbers forced equal, two unrelated tables: everything else that a user sees is equal too.

So nothing but the noisy numbers and public facts is shown: no warning made from true counts, no clip that depends on
the largest value, no log line about one row.
"""

from __future__ import annotations

import json
import logging
import re
import warnings
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from click.testing import CliRunner

from fastdp.cli import main
from tests.tables import flat
from tests.tables.forced import Script, forced
from tests.tables.neighbours import plain

BEGIN = datetime(2024, 3, 1)
HOURS = 30
GIVEN = {"start": BEGIN, "stop": BEGIN + timedelta(hours=HOURS)}
#: Noisy numbers of several sizes; the clip at the lowest candidate, in the middle, at the bound.
SCRIPTS = [Script(seed, clip, (("a",), ("c",))) for seed, clip in ((0, 0.0), (1, 0.5), (4, 1.0))]
PERSON = {"who": "person", "contributions": 3}
KEYS = {"by": "key", "keys": ["a", "b", "c"]}
CASES: dict[str, dict[str, Any]] = {
    "clip": {"clip": 3.0, **GIVEN},
    "clip about 0": {"clip": (-2.0, 3.0), **GIVEN},
    "clip above 0": {"clip": (2.0, 3.0), **GIVEN},
    "chosen": {"bound": 1000.0, **GIVEN},
    "chosen, keys": {"bound": 1000.0, **KEYS, **GIVEN},
    "chosen, ends taken": {"bound": 1000.0},
    "persons": {"clip": 3.0, **PERSON, **KEYS, **GIVEN},
    "persons, public keys": {"bound": 1000.0, **PERSON, "by": "key", "keys": "public"},
    "persons in a day": {"clip": 3.0, **PERSON, "period": "1d", "per_window": 1, **GIVEN},
    "private keys": {"bound": 1000.0, "by": "key", "delta": 1e-6, **GIVEN},
    "private keys of persons": {"bound": 1000.0, "by": "key", "delta": 1e-6, **PERSON, **GIVEN},
    "no private key": {"bound": 1000.0, "by": "person", "delta": 1e-6, **GIVEN},
    "gaussian": {"bound": 1000.0, "delta": 1e-6, "noise": "gaussian", **PERSON, **KEYS, **GIVEN},
    "gaussian, private keys": {"bound": 1000.0, "delta": 1e-6, "noise": "gaussian", "by": "key", **GIVEN},
}


def unrelated(which: int) -> pa.Table:
    rng, n = np.random.default_rng(which), (60, 900)[which]
    minutes = np.concatenate([[0, 60 * HOURS - 1, 5], rng.integers(0, 60 * HOURS, n - 3)])
    # In the second table most rows lie in the first hours.
    minutes[3:] //= (1, 6)[which]
    keys = np.concatenate(
        [list(("abc", "cba")[which]), rng.choice(["a", "b", "c"], n - 3, p=((0.8, 0.1, 0.1), (0.1, 0.8, 0.1))[which])]
    )
    values = (rng.random(n) * 0.01, rng.normal(0.0, 900.0, n))[which]
    persons = (np.arange(n), rng.integers(0, 7, n))[which]
    times = np.datetime64(BEGIN, "us") + minutes.astype("timedelta64[m]")
    return pa.table({"at": times, "key": keys, "value": values, "person": persons})


TABLES = [unrelated(0), unrelated(1)]
#: Every key has rows of persons that count under this one, in both tables: one without any is no candidate.
SEED = 5


def logged(caplog: pytest.LogCaptureFixture) -> list[Any]:
    lines = (line for line in caplog.records if line.name.startswith("fastdp"))
    return [(line.levelno, line.getMessage()) for line in lines]


def shown(table: Any) -> dict[str, Any]:
    frame = table.frame
    of_frame = frame.to_pandas() if isinstance(frame, pa.Table) else frame
    seen = {
        "sums": plain(table.released),
        "print": str(table),
        "repr": repr(table),
        "notebook": table._repr_html_(),
        "title": table.title(),
        "facts": table.facts(),
        "windows": len(table),
        "guarantee": (str(table.guarantee), table.guarantee.to_json()),
        "frame": (repr(of_frame), of_frame.to_csv() if hasattr(of_frame, "to_csv") else of_frame.write_csv()),
        "attrs": getattr(frame, "attrs", None),
        "arrow": (table.arrow.schema.to_string(), table.arrow.schema.metadata),
    }
    # Whatever else is an attribute: it must not be kept from the table.
    public = [name for name in dir(type(table)) if isinstance(getattr(type(table), name), property)]
    return seen | {name: plain(getattr(table, name)) for name in public if not name.startswith("_")}


def files(table: Any, folder: Path) -> dict[str, bytes]:
    folder.mkdir()
    for name in ("out.parquet", "out.csv"):
        table.write(folder / name)
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def released(
    kind: str, options: dict[str, Any], frame: Any, script: Script, caplog: pytest.LogCaptureFixture
) -> tuple[Any, list[Any]]:
    caplog.clear()
    given = {key: each for key, each in options.items() if kind != "counts" or key not in ("clip", "bound")}
    value = () if kind == "counts" else ("value",)
    with forced(script), warnings.catch_warnings(record=True) as warned, caplog.at_level(logging.DEBUG, "fastdp"):
        warnings.simplefilter("always")
        table = getattr(flat, kind)(frame, *value, "at", "1h", epsilon=1.0, seed=SEED, **given)
    said = [(str(each.message), each.category, each.filename, each.lineno) for each in warned]
    return table, said + logged(caplog)


def drawing(table: Any) -> list[Any]:
    axes = np.atleast_1d(table.plot())
    parts: list[Any] = [text.get_text() for text in axes[0].figure.findobj(mpl.text.Text)]
    for ax in axes:
        parts += [plain(line.get_xydata()) for line in ax.lines]
        parts += [plain(path.vertices) for drawn in ax.collections for path in drawn.get_paths()]
        parts += [ax.get_xlim(), ax.get_ylim()]
    mpl.pyplot.close(axes[0].figure)
    return parts


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kind", ["totals", "counts", "means"])
def test_unrelated_tables_show_the_same(
    kind: str, name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for script in SCRIPTS if kind == "totals" else SCRIPTS[1:2]:
        # No column of persons is a public fact: none of their keys passes.
        own = Script(script.seed, script.clip) if CASES[name].get("by") == "person" else script
        tables = [released(kind, CASES[name], frame, own, caplog) for frame in TABLES]
        assert tables[0][1] == tables[1][1]
        if name != "no private key":
            seen = [shown(table) for table, _ in tables]
            assert seen[0] == seen[1]
    if name == "no private key":
        return
    written = [files(table, tmp_path / str(i)) for i, (table, _) in enumerate(tables)]
    assert written[0] == written[1]
    assert len(written[0]) == 3
    if name == "chosen, keys":
        pytest.importorskip("matplotlib.pyplot").switch_backend("agg")
        pictures = [drawing(table) for table, _ in tables]
        assert pictures[0] == pictures[1]
        seen = [shown(released(kind, CASES[name], frame.to_pandas(), SCRIPTS[0], caplog)[0]) for frame in TABLES]
        assert seen[0] == seen[1]


def test_the_tables_are_unrelated(caplog: pytest.LogCaptureFixture) -> None:
    said = set()
    for name in ("persons", "chosen"):
        for script in SCRIPTS:
            said |= {each[0] for each in released("totals", CASES[name], TABLES[0], script, caplog)[1]}
    assert len(said) > 1
    found = []
    for frame in TABLES:
        with forced(SCRIPTS[0]) as hidden, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            flat.totals(frame, "value", "at", "1h", epsilon=1.0, seed=1, **CASES["persons"])
        found.append([each.exact for each in hidden])
    assert all((one != other).any() for one, other in zip(*found, strict=True))


def halves(which: int, frame: pa.Table, public: bool) -> list[pa.Table]:
    if public:
        # The latest time is known: both have it at first.
        return [frame.slice(0, frame.num_rows // (2, 5)[which]), frame]
    if which:
        return [frame.slice(0, 300), frame.slice(300)]
    early = np.array(frame["at"].to_numpy() < np.datetime64(BEGIN + timedelta(hours=10)))
    return [frame.filter(pa.array(early)), frame.filter(pa.array(~early))]


@pytest.mark.parametrize("kind", ["totals", "counts", "means"])
@pytest.mark.parametrize("lateness", [None, "1h"])
def test_windows_of_unrelated_rows_show_the_same(
    kind: str, lateness: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    options = {**KEYS, "lateness": lateness, "counts": kind == "counts", "means": kind == "means"}
    streams = []
    for which, frame in enumerate(TABLES):
        caplog.clear()
        bound = None if kind == "counts" else (-2.0, 3.0)
        person = {"who": True, "contributions": 3, "period": "3h", "per_window": 1}
        windows = flat.windows("1h", 1.0, BEGIN, bound=bound, seed=1, **options, **person)
        seen = []
        with (
            forced(SCRIPTS[0]),
            warnings.catch_warnings(record=True) as warned,
            caplog.at_level(logging.DEBUG, "fastdp"),
        ):
            warnings.simplefilter("always")
            for rows in halves(which, frame, public=lateness is not None):
                columns = {name: rows[name].combine_chunks() for name in rows.column_names}
                values = None if kind == "counts" else columns["value"]
                seen.append(windows.add(columns["at"], values, columns["key"], columns["person"]))
                seen.append(windows.advance(BEGIN + timedelta(hours=5 * len(seen))))
            seen.append(windows.advance(BEGIN + timedelta(hours=HOURS)))
        said = [(str(each.message), each.category) for each in warned]
        said += logged(caplog)
        facts = repr(windows), str(windows.guarantee), repr(windows.state)
        streams.append(([shown(table) for table in seen if len(table)], [len(table) for table in seen], said, facts))
        assert (windows.late > 0) == (which == 1 or lateness is not None)
    assert streams[0] == streams[1]


COMMANDS = {
    "clip": ["--clip", "3", "--start", "2024-03-01", "--stop", "2024-03-02T06:00"],
    "chosen": ["--bound", "1000", "--by", "key", "--keys", "a", "--keys", "b"],
    "persons": ["--clip", "-2,3", "--person", "person", "--rows", "3", "--by", "key", "--keys", "public"],
    "private keys": ["--bound", "1000", "--by", "key", "--delta", "1e-6", "--person", "person", "--rows", "3"],
}


@pytest.mark.parametrize("kind", ["totals", "counts", "means"])
def test_commands_print_and_write_the_same(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    outcomes = []
    for which, frame in enumerate(TABLES):
        folder = tmp_path / str(which)
        folder.mkdir()
        monkeypatch.chdir(folder)
        pyarrow.parquet.write_table(frame, "in.parquet")
        outcome: list[Any] = []
        for i, (name, options) in enumerate(COMMANDS.items()):
            drop = ("--clip", "--bound") if kind == "counts" else ()
            given = [each for j, each in enumerate(options) if not {each, options[max(j - 1, 0)]} & set(drop)]
            value = [] if kind == "counts" else ["--value", "value"]
            common = ["in.parquet", "--time", "at", "--every", "1h", "--epsilon", "1", "--seed", str(SEED), *value]
            target = [[f"{name}.csv"], ["out.parquet", "--plot", "out.png"], ["-"], ["-"]][i]
            caplog.clear()
            with (
                forced(SCRIPTS[i % 3]),
                warnings.catch_warnings(record=True) as warned,
                caplog.at_level(logging.DEBUG, "fastdp"),
            ):
                warnings.simplefilter("always")
                done = CliRunner().invoke(main, [kind, *common, *given, "-o", *target])
            assert done.exit_code == 0, done.output
            outcome.append(re.sub(r"(?m)^( *time +).*$", r"\1", done.output))
            outcome.append(logged(caplog) + [str(each.message) for each in warned])
        (folder / "in.parquet").unlink()
        written = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
        (name,) = json.loads(written["clip.csv.json"])["statistics"]
        assert name == {"totals": "value_sum", "counts": "count", "means": "value_mean"}[kind]
        assert set(written) == {"clip.csv", "clip.csv.json", "out.parquet", "out.png"}
        outcomes.append([*outcome, written])
    assert outcomes[0] == outcomes[1]
