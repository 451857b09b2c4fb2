from __future__ import annotations

import re
import sys

import numpy as np
import pytest
from click.testing import CliRunner

import fastdp
import fastdp_lab
from fastdp.cli import demo_command, main
from fastdp_lab.datasets import dns_like_day

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def run_demo(monkeypatch):
    """``fastdp demo`` on a day of 8,000 intervals."""
    monkeypatch.setattr(demo_command, "DAY_LENGTH", 8000)
    monkeypatch.setattr(demo_command, "MAX_LENGTH", 4096)

    def run_demo(*arguments: object):
        return CliRunner().invoke(main, ["demo", *map(str, arguments)])

    return run_demo


def test_table_and_picture(run_demo, tmp_path):
    pytest.importorskip("matplotlib")
    result = run_demo("-o", tmp_path / "demo.png", "--epsilon", 1, "--seed", 4)
    assert result.exit_code == 0, result.output
    values = dns_like_day(8000).astype(float)
    release = fastdp.Adaptive(1.0, 2000, 2000, 4096, seed=4).release(values)
    paper = fastdp.ToPS(1.0, 2000, 2000, 4096, seed=4).release(values)
    assert "6,000 published, 2,000 held out" in result.stdout
    assert f"{release.threshold:g} (public bound 2000)" in result.stdout
    assert str(release.guarantee) in result.stdout
    assert "median of 9 warm runs" in result.stdout
    starts, stops = fastdp_lab.workloads.random_ranges(6000, 200, 4096, 1)
    truth = np.array([values[2000 + a : 2000 + b].sum() for a, b in zip(starts, stops, strict=True)])
    answers = {
        "as published": release.sum(starts, stops),
        "revised": release.sum(starts, stops, revised=True),
        "ToPS": paper.sum(starts, stops),
        "zeros": 0.0 * truth,
    }
    errors = {name: fastdp_lab.metrics.mse(truth, answer) ** 0.5 for name, answer in answers.items()}
    edges = np.arange(0, 6001, 50)  # 120 stretches, as drawn
    parts = values[2000:].reshape(120, 50).sum(axis=1)
    drawn = {
        "as published": release.sum(edges[:-1], edges[1:]),
        "revised": release.sum(edges[:-1], edges[1:], revised=True),
        "ToPS": paper.sum(edges[:-1], edges[1:]),
        "zeros": 0.0 * parts,
    }
    size = fastdp_lab.metrics.mse(parts, drawn["zeros"])
    for name, error in errors.items():
        share = re.escape(f"{error / errors['zeros']:.3%}")
        fine = re.escape(f"{(fastdp_lab.metrics.mse(parts, drawn[name]) / size) ** 0.5:.3%}")
        line = rf"^{name} +{error:,.0f} +{share} of the true sums +{fine} of the means"
        assert re.search(line, result.stdout, re.M), name
    assert (tmp_path / "demo.png").read_bytes().startswith(PNG)


def test_noise_is_fresh_by_default(run_demo):
    outputs = [run_demo("--no-picture") for _ in range(2)]
    assert all("SIMULATED" not in result.stdout for result in outputs)
    # One of the numbers may be the same by chance, not all nine.
    errors = {tuple(re.findall(r"^(?:as published|revised|ToPS) .*$", result.stdout, re.M)) for result in outputs}
    assert {len(lines) for lines in errors} == {3}
    assert len(errors) == 2


def test_without_matplotlib(run_demo, tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = run_demo("-o", tmp_path / "demo.png")
    assert result.exit_code == 0, result.output
    assert "pip install 'fastdp-streams[plot]'" in result.stdout
    assert not (tmp_path / "demo.png").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--epsilon", -1, "--no-picture"], "epsilon = -1.0: expected a number above 0"),
        (["-o", "demo.csv"], "picture demo.csv: expected a suffix among"),
        (["-o", "no/demo.png"], "no/demo.png: No such file or directory"),
    ],
)
def test_errors(arguments, said, run_demo, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run_demo(*arguments)
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    assert said in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_day_has_the_quantiles_it_states():
    day = dns_like_day()
    assert day.size == 2**20 + 65_536
    assert day.min() >= 0
    assert day.max() == 640
    assert day.mean() == pytest.approx(38.0, abs=0.05)
    np.testing.assert_array_equal(np.quantile(day, [0.85, 0.95, 0.995]), [62, 86, 134])
    # The hold-out resembles the rest in the tail, which is what chooses the threshold.
    assert 0.7 < np.quantile(day[:65_536], 0.995) / 134 < 1.1
