"""The suites: each is an accepted specification, its claims name what it runs, its page says what was found."""

from __future__ import annotations

import tomllib
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fastdp.errors import FastDPError
from fastdp_lab import suites
from fastdp_lab.datasets import CATALOGUE
from fastdp_lab.sweeps import check_data, draw, load, page, run, timed
from fastdp_lab.sweeps.claims import Claim, decide
from fastdp_lab.sweeps.figures import Sweep

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

#: Of units, and those whose names begin with a paper's.
STANDARD = ("streams", "w-event", "persons", "local", "points")
PAPERS = ("tops", "pak", "phdstream")
FIGURES = [path.stem for path in sorted(suites.HERE.glob("*_*.toml"))]


def test_every_suite_is_listed() -> None:
    found = suites.names()
    assert {*STANDARD, *PAPERS, *FIGURES} <= set(found)
    assert found["tops_figure_3"] == "Figure 3 of ToPS"


@pytest.mark.parametrize("name", STANDARD)
def test_a_standard_suite_has_rivals_and_our_own(name: str) -> None:
    (suite,) = suites.of_name(name)
    assert suite.unit == {"streams": "event", "persons": "series"}.get(name, name)
    ran = {each.name for each in suite.specification.mechanisms}
    assert ran & {"ToPS", "release, w", "release, series", "ToPL", "PHDStream"}
    assert len(ran) >= 7
    assert len(suite.specification.epsilons) == 5
    assert suite.specification.repetitions == 20
    assert set(suite.tuned) <= {each.name for each in suites.of_name(name, data=Path())[0].specification.datasets} | {
        "POS, real",
        "taxi distance, real",
        "MSNBC, real",
        "smart meter, real",
    }
    (quick,) = suites.of_name(name, quick=True)
    assert quick.specification.repetitions == 2


@pytest.mark.parametrize("name", FIGURES)
def test_claims_name_what_a_figure_runs(name: str, tmp_path: Path) -> None:
    """Mechanisms and metrics are checked as the file is read; every claim is asked of a stream, with data or not."""
    tables = tomllib.loads((suites.HERE / f"{name}.toml").read_text())["datasets"]
    for each in tables:
        for file in (each.get("real", {}).get("file"), each.get("file")):
            if file is not None:
                (tmp_path / file).parent.mkdir(exist_ok=True)
                (tmp_path / file).touch()
    (real,) = suites.of_name(name, data=tmp_path)
    runs = [real.specification]
    if not all(each.get("optional", False) for each in tables):
        runs.append(suites.of_name(name)[0].specification)
    streams = [{each.name for each in run.datasets} for run in runs]
    for claim in real.claims:
        assert all(not claim.datasets or there & set(claim.datasets) for there in streams), claim.says
        assert set(claim.datasets) <= {each["name"] for each in tables}.union(*streams), claim.says
        epsilons = {epsilon for _, epsilon in real.specification.pairs()}
        assert {*claim.epsilons, claim.better_epsilon} - {None} <= epsilons


def test_a_paper_is_all_its_figures() -> None:
    assert [each.name for each in suites.of_name("tops")] == [each for each in FIGURES if each.startswith("tops")]
    with pytest.raises(FastDPError, match="expected one of"):
        suites.of_name("topl")


def test_real_streams_take_the_place_of_synthetic_ones(tmp_path: Path) -> None:
    (synthetic,) = suites.of_name("tops_figure_3", data=tmp_path)
    assert [each.kind for each in synthetic.specification.datasets] == ["generator"] * 4
    for file in ("pos_length.npz", "smartmeter10_wh.npz"):
        np.savez(tmp_path / file, values=np.arange(100.0))
    (real,) = suites.of_name("tops_figure_3", data=tmp_path)
    found = {each.name: each for each in real.specification.datasets}
    assert [each.kind for each in found.values()] == ["generator"] * 3 + ["file"] * 2
    assert found["POS"].bound == 1657.0
    assert found["POS"].published == found["DNS"].published
    assert "smart meter" in found


def test_what_was_downloaded_is_run_beside_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pooch", reason="pooch is not installed")
    monkeypatch.setenv("FASTDP_DATA", str(tmp_path))
    for there in (False, True):
        (real,), (synthetic,) = (suites.of_name("tops_figure_3", data=data) for data in (tmp_path, None))
        names = [each.name for each in real.specification.datasets]
        assert ("Kosarak, downloaded" in names) == there
        assert "Kosarak, downloaded" not in [each.name for each in synthetic.specification.datasets]
        (tmp_path / CATALOGUE["kosarak"].file).touch()


@pytest.mark.slow
def test_synthetic_streams_have_the_quantiles_of_table_1(tmp_path: Path) -> None:
    (suite,) = suites.of_name("tops_table_1")
    last = replace(suite.specification, datasets=suite.specification.datasets[-1:])
    rows = Sweep(run(last, tmp_path / "out")).rows
    verdicts = [decide(claim, rows) for claim in suite.claims]
    assert [each.found for each in verdicts] == ["open"] * 15 + ["agrees"] * 5
    ratios = [each.ratios[0] for each in verdicts[15:]]
    assert ratios == pytest.approx([13.0, 21.0, 39.0, 165.0, 7.5], rel=0.01)


def test_a_suite_of_real_streams_alone_needs_them(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(SUITE.replace('generator = "table1"\nstream = "pos"\n', 'file = "pos.npy"\noptional = true\n'))
    with pytest.raises(FastDPError, match=r"own\.toml: datasets: none of their files is there"):
        suites.from_file(path, data=tmp_path)


SUITE = """
name = "Tiny <suite>"
about = "A subject."
unit = "event"
tuned = ["POS"]
epsilons = [0.5, 2.0]
repetitions = 2
holdout = 100
max_range = 500
metrics = ["mse", "coverage"]

[[datasets]]
name = "POS"
generator = "table1"
stream = "pos"
n = 600

[[mechanisms]]
name = "Adaptive"
system = "adaptive"

[[mechanisms]]
name = "Base"
system = "base"

[[mechanisms]]
name = "binary tree"
system = "binary tree"
"""
CLAIM = """
[[claims]]
says = "The tree is <worse> than zeros"
better = "Base"
worse = "binary tree"
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("error::fastdp.errors.AccuracyWarning")
def test_pages_and_their_archive(tmp_path: Path) -> None:
    found = []
    for name, text in (("plain", SUITE), ("claims", SUITE + CLAIM)):
        (tmp_path / f"{name}.toml").write_text(text)
        suite = suites.from_file(tmp_path / f"{name}.toml")
        folder = run(suite.specification, tmp_path / "out" / name)
        found.append(suite)
        path = page.write_page(folder, suite, timed(suite.specification, tmp_path))
        assert path == folder / "index.html"
    plain, claims = ((tmp_path / "out" / name / "index.html").read_text() for name in ("plain", "claims"))
    for text in (plain, claims):
        assert "<h1>Tiny &lt;suite&gt;</h1>" in text
        assert "any one value" in text
        assert "<script" not in text
        assert "results.parquet" in text
    assert plain.count("<tr class=ours><td>Adaptive</td>") == 2, "our own stands out in both tables"
    assert "by_kind.png" not in plain, "one kind of queries is no picture"
    assert (tmp_path / "out" / "plain" / "figures" / "by_epsilon.png").exists()
    assert "Chan, Shi and Song" in plain
    assert "<th>tuned on</th></tr>" in plain
    assert "<td>yes</td></tr>" in plain, "POS served to tune"
    assert "The tree is &lt;worse&gt; than zeros" in claims
    assert 'src="figures/mse.png"' in claims
    assert (tmp_path / "out" / "claims" / "figures" / "mse.png").exists()
    index = page.write_index(tmp_path / "out", "All", found).read_text()
    assert 'href="claims/index.html"' in index
    assert "agrees" in index or "differs" in index or "open" in index
    archive = page.write_archive(tmp_path / "out")
    first = archive.read_bytes()
    assert page.write_archive(tmp_path / "out").read_bytes() == first
    with zipfile.ZipFile(archive) as files:
        names = files.namelist()
        assert "out/plain/results.parquet" in names
        lines = files.read("out/SHA256SUMS").decode().splitlines()
    assert len(lines) == len(names) - 1


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('unit = "event"', 'unit = "evnt"', "unit = 'evnt': expected one of"),
        ('about = "A subject."', "about = 5", "about = 5: expected a text"),
        ('tuned = ["POS"]', 'tuned = "POS"', "tuned = 'POS': expected a list"),
        ('tuned = ["POS"]', "tuned = [3]", "tuned[0] = 3: expected a text"),
        ('better = "Base"', 'better = "Bass"', "claims[0].better = 'Bass': expected one of"),
        ('better = "Base"', 'better = "Base"\nmetric = "maee"', "claims[0].metric = 'maee': expected one of"),
        ('better = "Base"', 'better = "Base"\nmetric = "mae"', "claims[0].metric = 'mae': expected one of"),
        ('better = "Base"', "better = []", "claims[0].better = []: expected a name"),
        ('better = "Base"', 'better = 0\nby = "look"', "claims[0].by = 'look': expected one of 'mechanism'"),
        ('better = "Base"', 'better = 5.0\nby = "epsilon"', "claims[0].better = 5.0: expected one of 0.5, 2.0"),
        ('better = "Base"', 'better = "al"\nby = "group"', "claims[0].better = 'al': expected one of 'all'"),
        ('better = "Base"', 'better = "Base"\nbetter_epsilon = 1', "claims[0].better_epsilon = 1.0: expected one of"),
        ('better = "Base"', 'better = "Base"\nepsilons = [1]', "claims[0].epsilons[0] = 1.0: expected one of"),
        ('better = "Base"', 'better = "Base"\ndatasets = ["PSO"]', "claims[0].datasets[0] = 'PSO': expected one of"),
        ('better = "Base"', 'better = "Base"\ngroups = ["al"]', "claims[0].groups[0] = 'al': expected one of"),
        ("n = 600", "n = 600\noptional = true", "datasets[0].generator = 'table1': expected file or download"),
        ("n = 600", "n = 600\nreal = 5", "datasets[0].real = 5: expected a table"),
        ("n = 600", 'n = 600\nreal = { name = "r" }', "datasets[0].real has no source: expected one of"),
        ("n = 600", "n = 600\nreal = { file = 5 }", "datasets[0].real.file = 5: expected a text"),
        ("n = 600", 'n = 600\nreal = { download = "n" }', "datasets[0].real.download = 'n': expected one of"),
    ],
)
def test_keys_of_a_page_are_checked_before_a_run(tmp_path: Path, old: str, new: str, said: str) -> None:
    (tmp_path / "own.toml").write_text((SUITE + CLAIM).replace(old, new))
    with pytest.raises(FastDPError) as found:
        suites.from_file(tmp_path / "own.toml")
    assert said in str(found.value)


@pytest.mark.parametrize(
    ("bound", "values", "accepted"),
    [
        ("bound = 1.5", [1, 0], False),
        ("bound = 2\nsensitivity = 1.5", [1, 0], False),
        ("bound = 2\nsensitivity = 1", [0.5, 1.5], False),
        ("bound = 2\nsensitivity = 1", [0, 2], True),
        ("bound = 2", [0.5, 1.5], True),
    ],
)
def test_registered_mechanisms_take_whole_numbers(
    tmp_path: Path, bound: str, values: list[float], accepted: bool
) -> None:
    np.save(tmp_path / "x.npy", np.resize(np.array(values), 50))
    (tmp_path / "own.toml").write_text(
        f'epsilons = [1.0]\nholdout = 10\nmax_range = 20\n[[datasets]]\nname = "x"\nfile = "x.npy"\n{bound}\n'
        '[[mechanisms]]\nsystem = "Laplace"\n'
    )
    specification = suites.from_file(tmp_path / "own.toml").specification
    if accepted:
        assert check_data(specification, tmp_path)
    else:
        with pytest.raises(FastDPError, match=r"expected whole numbers for Laplace.*makes bound, sensitivity and"):
            check_data(specification, tmp_path)


def test_a_private_threshold_is_no_axis(tmp_path: Path) -> None:
    """One run of one budget has one threshold, which was not listed."""
    (tmp_path / "own.toml").write_text(SUITE.replace("[0.5, 2.0]", "[0.5]").replace("repetitions = 2", ""))
    own = suites.from_file(tmp_path / "own.toml").specification
    folder = run(replace(own, mechanisms=own.mechanisms[:1]), tmp_path / "out")
    assert load(folder)["threshold"].notna().all()
    assert draw(folder, tmp_path / "pictures") == []


def test_a_mechanism_that_fails_leaves_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The binary tree has no parts of so small an epsilon."""
    text = SUITE.replace("[0.5, 2.0]", "[1e-8]").replace('name = "binary tree"', 'name = "DSAT"')
    (tmp_path / "own.toml").write_text(text)
    suite = suites.from_file(tmp_path / "own.toml")
    suite = replace(suite, specification=replace(suite.specification, mechanisms=suite.specification.mechanisms[1:]))
    folder = run(suite.specification, tmp_path / "out")
    seconds = timed(suite.specification, tmp_path)
    assert np.isnan(seconds["DSAT"])
    assert seconds["Base"] > 0.0
    told = page.write_page(folder, suite, seconds).read_text()
    assert "2 cells failed, the first: ParameterError: epsilon: a share" in told
    claimed = page.write_page(folder, replace(suite, claims=(Claim("s", "Base", "DSAT"),)), seconds).read_text()
    assert '<td class="text">mse of DSAT / Base' in claimed
    assert "0 of 0 hold" in claimed
    monkeypatch.chdir(folder)
    assert page.write_archive(Path()) == tmp_path / "out.zip"
