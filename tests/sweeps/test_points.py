"""Sweeps over streams of points: what is refused, that numbers are the publishers' own, that bytes stay the same."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from fastdp import PHDStream
from fastdp.counters import Block
from fastdp.errors import FastDPError
from fastdp.noise.key import Key
from fastdp.points import Box
from fastdp_lab import sweeps
from fastdp_lab.baselines import OfflineOnStream
from fastdp_lab.datasets import concentric_circles
from fastdp_lab.sweeps.runner import check_data
from fastdp_lab.sweeps.specification import parts, query_seed
from fastdp_lab.sweeps.study import load_truth
from tests.sweeps.conftest import PLACES, complaint


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    return sweeps.run(sweeps.from_table(PLACES), tmp_path_factory.mktemp("places") / "out")


def _files(folder: Path) -> None:
    generator = np.random.default_rng(0)
    rows = zip(1_300_000_000 + 3600 * np.arange(400), *generator.uniform((40.6, -74.1), (40.9, -73.8), (400, 2)).T)  # noqa: B905
    text = "t,lat,lon\n" + "".join(f"{t},{lat},{lon}\n" for t, lat, lon in rows)
    (folder / "rides.csv").write_text(text)
    with gzip.open(folder / "check-ins.csv.gz", "wt") as file:
        file.write(text)
    (folder / "circles.csv").write_text("x,y,move\n1.0,0.5,1\n0.5,0.5,1\n1.0,0.5,-1\n0.1,0.1,1\n")


def test_files_are_read_by_the_loaders(places, tmp_path) -> None:
    _files(tmp_path)
    box = {"left": -74.2, "bottom": 40.5, "right": -73.7, "top": 41.0}
    places["datasets"] = [
        {"name": "rides", "file": "rides.csv", "format": "pickups", "period": 86_400.0, "initial": 0.1},
        {"name": "own box", "file": "rides.csv", "format": "pickups", "batch": 100, "box": box},
        {
            "name": "stays",
            "file": "check-ins.csv.gz",
            "format": "gowalla",
            "deletion": True,
            "lifetime": 86_400.0,
            "period": 86_400.0,
            "start": [2, 4],
        },
        {"name": "moves", "file": "circles.csv", "format": "circles", "batch": 2, "initial": 0.0},
    ]
    del places["workloads"][1]
    places["repetitions"], places["epsilons"] = 1, [1.0]
    found = sweeps.from_table(places)
    data = check_data(found, tmp_path)
    assert [each["events"] for each in data.values()] == [400, 400, 776, 776, 4]
    assert data["stays, start=2"]["batches"] == data["stays, start=4"]["batches"] + 2
    assert found.datasets[1].box == ((-74.2, 40.5), (-73.7, 41.0))
    table = sweeps.load(sweeps.run(found, tmp_path / "out", data=tmp_path))
    assert not table["error"].notna().any()
    boxes = table[table["workload"] == "boxes"]
    assert boxes[boxes["dataset"] == "stays, start=4"]["time"].min() == 4.0
    assert complaint(places, tmp_path / "no").startswith("rides: no such file")
    del places["datasets"][0]["period"]
    assert complaint(places, tmp_path).startswith("datasets[0].batch, period: expected exactly one")


def test_domains_that_are_no_box(places, tmp_path) -> None:
    """Pickups on made-up streets, and circles on land that is read from GeoJSON."""
    pytest.importorskip("shapely", reason="the extra 'geo' (shapely) is not installed")
    land = '{"type": "Polygon", "coordinates": [[[-1.2, -1.2], [1.2, -1.2], [0.3, 1.1], [-1.2, -1.2]]]}'
    (tmp_path / "land.geojson").write_text(land)
    circles = {**places["datasets"][0], "name": "land", "domain": "land.geojson", "deletion": True}
    places["datasets"] = [
        circles,
        {"name": "streets", "generator": "pickups", "n_points": 500, "days": 2, "domain": "streets", "start": 4},
    ]
    places["repetitions"], places["epsilons"] = 1, [1.0]
    del places["workloads"][1]
    found = sweeps.from_table(places)
    data = check_data(found, tmp_path)
    on_land, on_streets = (load_truth(each, tmp_path) for each in found.datasets)
    assert data["land"]["box"] == [[-1.2, -1.2], [1.2, 1.1]]
    for scene, events in ((on_land, 900), (on_streets, 500)):
        points = scene.stream.points
        assert scene.domain.contains(points).all()
        assert 0.3 * events < len(points) < 0.95 * events
        removals = scene.stream.cancels >= 0
        np.testing.assert_array_equal(points[removals], points[scene.stream.cancels[removals]])
        assert scene.stream.cuts[-1] == len(points)
    # By hand: what is present is what was present and lies inside.
    stream = concentric_circles(600, batch=90, deletion=True, seed=7)
    for t in (0, 4, 9):
        want = stream.present(t)
        np.testing.assert_array_equal(on_land.stream.present(t), want[on_land.domain.contains(want)])
    folder = sweeps.run(found, tmp_path / "out", data=tmp_path)
    assert not sweeps.load(folder)["error"].notna().any()
    (tmp_path / "land.geojson").write_text(land.replace("0.3, 1.1", "0.2, 1.1"))
    with pytest.raises(FastDPError, match="the data sets have changed"):
        sweeps.run(found, folder, data=tmp_path)
    (tmp_path / "land.geojson").write_text("{")
    assert complaint(places, tmp_path).startswith(f"domain {tmp_path / 'land.geojson'}: not readable as GeoJSON")
    circles["domain"] = "sea.geojson"
    assert complaint(places, tmp_path).startswith(f"domain {tmp_path / 'sea.geojson'}: cannot be read (No such")


def test_numbers_are_those_of_the_publisher_under_the_cell_s_key(finished) -> None:
    """By hand: the stream, the boxes, the noise, and the formulas of section 5.4."""
    found, table = sweeps.from_table(PLACES), sweeps.load(finished)
    root = Key.from_seed(3)
    block = {"part": "Block", "size": 4}
    numbered = ((part.first + k, *cell) for part in parts(found) for k, cell in enumerate(part.cells))
    begin, group = next((k, each) for k, each, _ in numbered if each.mechanism.parameters.get("counter") == block)
    stream = concentric_circles(600, batch=90, deletion=True, seed=7)
    publisher = PHDStream(Box((-1.25, -1.25), (1.25, 1.25)), group.epsilon, Block(4), key=group.key(root, 1))
    publisher.advance(stream.initial)
    workload = found.workloads[0]
    seed = query_seed(root, workload, group.data_set, 1)
    boxes = workload.draw(group.data_set.box, seed)
    rows = table[(table["cell"] == begin + 1) & (table["workload"] == "boxes")]
    assert rows["time"].unique().tolist() == [0.0, 3.0, 6.0, 9.0]
    assert rows["group"].tolist() == 4 * ["small", "medium", "large"]
    at = 0
    for t in (0, 3, 6, 9):
        for added, removed in list(stream.batches)[at:t]:
            publisher.advance(added, removed)
        at = t
        points, sampled, tree = stream.present(t), publisher.sample(), publisher.tree
        sizes = (tree.upper - tree.lower).prod(axis=1)
        own = ((tree.lower <= points[:, None]) & (points[:, None] <= tree.upper)).all(axis=2).argmax(axis=1)
        for each, (_, row) in zip(boxes, rows[rows["time"] == t].iterrows(), strict=True):
            truth, answer = (
                np.array(
                    [
                        np.all((low <= cloud) & (cloud <= high), axis=1).sum()
                        for low, high in zip(each.lower, each.upper, strict=True)
                    ]
                )
                for cloud in (points, sampled)
            )
            error = np.abs(answer - truth)
            assert row["points"] == len(points)
            assert row["total"] == publisher.total
            assert row["leaves"] == publisher.tree.n_leaves
            assert row["mae"] == pytest.approx(error.mean())
            assert row["mse"] == pytest.approx((error**2).mean())
            assert row["relative_error"] == pytest.approx(np.mean(error / np.maximum(truth, 0.001 * len(points))))
            assert row["focus"] == pytest.approx(float(np.average(sizes, weights=sizes) / sizes[own].mean()))
    asked = table[(table["cell"] == begin + 1) & (table["workload"] == "tree")]
    assert asked["time"].tolist() == [0.0, 5.0]


def test_maps_are_of_the_first_repetition(finished) -> None:
    table = sweeps.load(finished)
    assert table["cell"].nunique() == 72
    maps = table[table["workload"] == "map"]
    assert set(maps["repetition"]) == {0}
    assert (maps.groupby("cell")["group"].nunique() == 36).all()
    one = maps[(maps["cell"] == 0) & (maps["time"] == 9.0)]
    assert one["truth"].sum() == one["points"].iloc[0], "the grid covers the domain"
    assert maps["mse"].isna().all()


def test_maps_name_the_region_around_the_middle_of_each_box(places, tmp_path) -> None:
    places["mechanisms"], places["epsilons"], places["repetitions"] = places["mechanisms"][2:3], [2.0], 1
    places["datasets"][0]["deletion"] = False
    places["workloads"] = [{"kind": "map", "count": 5, "times": [6]}]
    found = sweeps.from_table(places)
    table = sweeps.load(sweeps.run(found, tmp_path / "out"))
    stream = concentric_circles(600, batch=90, deletion=False, seed=7)
    ((group, _),) = next(parts(found)).cells
    publisher = OfflineOnStream(Box((-1.25, -1.25), (1.25, 1.25)), 2.0, key=group.key(Key.from_seed(3), 0))
    publisher.advance(stream.present(6))
    tree, axis = publisher.tree, np.linspace(-1.0, 1.0, 5)
    middles = np.array([(x, y) for y in axis for x in axis])
    inside = ((tree.lower <= middles[:, None]) & (middles[:, None] < tree.upper)).all(axis=2)
    assert tree.n_leaves > 10
    assert table["region"].tolist() == inside.argmax(axis=1).tolist()


@pytest.mark.slow
def test_pictures_from_result_files_alone(finished, tmp_path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    drawn = sweeps.draw(finished, tmp_path / "all", formats=["svg"])
    names = {path.stem for path in drawn}
    classes = ("small", "medium", "large", "large_tree")
    metrics = ("relative_error", "mse", "mae")
    kinds = [f"{metric}{kind}_{name}" for metric in metrics for name in classes for kind in ("", "_over_time")]
    kinds += [f"{name}_over_time{label}" for name in ("total", "points") for label in ("", "_tree")]
    kinds += ["map_0", "map_1"]
    assert names == set(kinds)
    some = sweeps.draw(finished, tmp_path / "some", group="small", formats=["png"])
    errors = [
        f"{metric}{kind}_small.png" for metric in ("mse", "mae", "relative_error") for kind in ("_over_time", "")
    ]
    assert [path.name for path in some] == [
        *errors,
        *("total_over_time.png", "points_over_time.png"),
        *("map_0.png", "map_1.png"),
    ]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in some)
