"""Errors of a specification are reported before anything runs, by the name of its key."""

from __future__ import annotations

import itertools
import tomllib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import fastdp
from fastdp.errors import DataError, ParameterError
from fastdp_lab import suites, sweeps
from fastdp_lab.sweeps.runner import check_data
from fastdp_lab.sweeps.specification import Group, count_cells, parts
from tests.sweeps.conftest import HERE, complaint

SUITES = Path(suites.__file__).parent

REFUSALS = tomllib.loads((HERE / "refusals.toml").read_text())


@pytest.mark.parametrize(
    ("kind", "path", "value", "said"), [(kind, *each) for kind in REFUSALS for each in REFUSALS[kind]]
)
def test_wrong_values_are_named_by_their_key(small, places, kind, path, value, said) -> None:
    tables = inner = {"small": small, "places": places}[kind]
    *way, last = path
    for step in way:
        inner = inner[step]
    inner[last] = value
    assert complaint(tables).startswith(said)


def test_files_that_are_missing_or_need_a_column(small, tmp_path) -> None:
    small["datasets"] = [{"name": "mine", "file": "no.npy"}]
    assert complaint(small) == "datasets[0].bound is missing: expected a value for it"
    small["datasets"][0]["bound"] = 3
    assert complaint(small).startswith("datasets[0]: ")
    assert "no.npy: no such file" in complaint(small)
    np.save(tmp_path / "two.npy", np.ones((900, 2)))
    small["datasets"][0]["file"] = str(tmp_path / "two.npy")
    assert "has 2 columns; expected one of 0, 1" in complaint(small)
    small["datasets"][0]["column"] = "1"
    assert check_data(sweeps.from_table(small), Path())["mine"]["values"] == 900
    np.save(tmp_path / "nan.npy", np.full(900, np.nan))
    small["datasets"][0] = {"name": "mine", "file": str(tmp_path / "nan.npy"), "bound": 3}
    assert complaint(small) == "datasets[0]: mine holds NaN or infinity: expected finite values"


def test_lists_expand_to_a_grid(small) -> None:
    small["mechanisms"] = [
        {
            "name": "grid",
            "system": "publisher",
            "threshold": {"part": "NoisyMax", "c": [20.0, 60.0]},
            "perturber": {"part": "Hierarchy", "prune": [0, 1, 2]},
            "smoother": [{"part": "Recent"}, {"part": "MovingAverage", "window": 3}],
        }
    ]
    found = sweeps.from_table(small)
    assert [each.name for each in found.datasets] == ["POS, order=iid", "POS, order=bursty"]
    assert len(found.mechanisms) == 12
    assert found.mechanisms[1].name == ("grid, threshold.c=20.0, perturber.prune=0, smoother=MovingAverage/window=3")
    assert found.mechanisms[-1].parameters == {
        "threshold": {"part": "NoisyMax", "c": 60.0},
        "perturber": {"part": "Hierarchy", "prune": 2},
        "smoother": {"part": "MovingAverage", "window": 3},
    }
    assert count_cells(found) == 2 * 12 * 2 * 5


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_parts_hold_every_cell_once_in_order(small, size) -> None:
    small["part_cells"] = size
    found = sweeps.from_table(small)
    every = list(parts(found))
    cells = [
        (group.data_set.name, group.mechanism.name, group.epsilon, k) for part in every for group, k in part.cells
    ]
    product = itertools.product(found.datasets, found.pairs(), range(5))
    assert cells == [(each.name, mechanism.name, epsilon, k) for each, (mechanism, epsilon), k in product]
    assert len(cells) == count_cells(found)
    assert [part.first for part in every] == [0, *itertools.accumulate(len(part.cells) for part in every[:-1])]
    assert all(len(part.cells) <= size for part in every)
    assert len({part.name for part in every}) == len(every)


def groups(tables) -> dict[Group, None]:
    return dict.fromkeys(group for part in parts(sweeps.from_table(tables)) for group, _ in part.cells)


def test_keys_depend_on_seed_and_cell_alone(small) -> None:
    from fastdp.noise.key import Key

    root = Key.from_seed(3)
    found = {(g.mechanism.name, g.data_set.name, g.epsilon): g for g in groups(small)}
    small["mechanisms"] = [{"name": "renamed", "system": "tops", "prune": 1}, small["mechanisms"][1]]
    small["datasets"][0]["order"] = ["bursty"]
    small["datasets"][0]["name"] = "other"
    small["epsilons"] = [1]
    moved = {g.mechanism.name: g for g in groups(small)}
    old = found["ToPS, prune=1", "POS, order=bursty", 1.0]
    assert moved["renamed"].key(root, 2) == old.key(root, 2)
    every = {g.key(root, k) for g in found.values() for k in range(3)} | {old.key(Key.from_seed(4), 0)}
    assert len(every) == 3 * len(found) + 1


@pytest.mark.parametrize("real", [False, True])
def test_the_suites_specifications_are_accepted(tmp_path: Path, real: bool) -> None:
    """With synthetic streams, and where a folder has all files."""
    for path in SUITES.glob("*.toml") if real else ():
        for each in tomllib.loads(path.read_text())["datasets"]:
            for name in {each.get("file"), each.get("real", {}).get("file")} - {None}:
                (tmp_path / name).parent.mkdir(exist_ok=True)
                (tmp_path / name).touch()
    files = [path for path in sorted(SUITES.glob("*.toml")) if real or "optional = true" not in path.read_text()]
    assert len(files) >= 10
    for path in files:
        found = suites.from_file(path, data=tmp_path).specification
        for each in found.datasets:
            box = fastdp.points.Box(*each.box) if hasattr(each, "box") else None
            size = getattr(each, "published", None) or 2**20
            found.check(SimpleNamespace(data_set=each, size=size, domain=box, whole=True))


def test_where_hold_out_and_published_part_are_one_a_short_stream_is_reflected(small, tmp_path) -> None:
    np.save(tmp_path / "short.npy", np.arange(1.0, 401.0))
    table = {"name": "short", "file": "short.npy", "bound": 500, "holdout": 900, "published": 900, "overlap": True}
    data_set = sweeps.from_table({**small, "datasets": [table]}).datasets[0]
    forward = np.arange(1.0, 401.0)
    nine_hundred = np.concatenate([forward, forward[::-1], forward[:100]])
    assert (data_set.load(tmp_path).values == np.tile(nine_hundred, 2)).all()
    apart = sweeps.from_table({**small, "datasets": [{**table, "overlap": False}]}).datasets[0]
    with pytest.raises(DataError, match="holdout = 900: expected less than the 400 values"):
        apart.load(tmp_path)


def test_tables_and_objects_are_checked(small, tmp_path, monkeypatch) -> None:
    whole = sweeps.from_table(small)
    numbers = {"epsilons": [np.float64(0.1), np.int64(1)], "repetitions": np.int64(5), "holdout": np.int64(500)}
    assert sweeps.from_table({**small, **numbers}) == whole
    for field, value in (("metrics", ("rmse",)), ("name", ""), ("truth", "cut"), ("epsilons", (1.0, 1.0))):
        with pytest.raises(ParameterError, match=rf"^{field}.* = .*: expected"):
            replace(whole, **{field: value})
    for text, said in (("a = \n", r"bad\.toml: not readable as TOML"), ("epsilons = 3\n", "datasets is missing")):
        (tmp_path / "bad.toml").write_text(text)
        with pytest.raises((DataError, ParameterError), match=said):
            sweeps.read_specification(tmp_path / "bad.toml")
    del small["epsilons"]
    assert complaint(small) == "epsilons is missing: expected a value for it"
    small["epsilons"] = [1.0]
    del small["mechanisms"][1]["threshold"]
    assert complaint(small) == "mechanisms[1].threshold is missing: expected a table with its part"
    small["mechanisms"][1]["threshold"] = {"p": 0.9}
    assert complaint(small).startswith("mechanisms[1].threshold.part = None: expected one of")
    parts = [{"part": "NoisyMax", "c": 20.0}, {"part": "NoisyMax", "step": 20.0}]
    small["mechanisms"] = [{"name": "P", "system": "publisher", "threshold": parts, "perturber": {"part": "Flat"}}]
    labels = [each.name for each in sweeps.from_table(small).mechanisms]
    assert labels == ["P, threshold=NoisyMax/c=20.0", "P, threshold=NoisyMax/step=20.0"]
    monkeypatch.setenv("FASTDP_DATA", str(tmp_path))
    small["datasets"] = [{"name": "clicks", "download": "kosarak"}]
    assert complaint(small).endswith("run: fastdp datasets --download kosarak")
