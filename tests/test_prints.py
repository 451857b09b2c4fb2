"""Numbers that releases, plans, guarantees, ledgers and commands print are those of their attributes."""

from __future__ import annotations

import json
import re
from itertools import chain
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from click.testing import CliRunner

import fastdp
from fastdp.cli import main
from fastdp.ledger import Ledger
from tests.tables.test_print import expected_lines, numbers

pa = pytest.importorskip("pyarrow", reason="needs pyarrow")
csv = pytest.importorskip("pyarrow.csv", reason="needs pyarrow")
pytestmark = pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
VALUES = np.random.default_rng(1).gamma(2.0, 3.0, 3_000)


def ends(values: np.ndarray) -> list[str]:
    shown = [f"{each:.6g}" for each in values[:4]]
    return shown if values.size <= 4 else [*shown, f"{values[-1]:.6g}"]


def cost(guarantee: fastdp.Guarantee) -> list[str]:
    delta = [f"{guarantee.delta:g}"] if guarantee.delta else []
    return [f"{guarantee.epsilon:g}", *delta, *numbers(f"{guarantee.unit} {guarantee.adjacency}")]


def shown_in_a_notebook(page: Any) -> tuple[str, list[str], list[str]]:
    """Title, cells and lines below, of the elements that a browser would show."""
    if not isinstance(page, ElementTree.Element):
        page = ElementTree.fromstring(page._repr_html_().replace("<br>", "<br/>"))  # noqa: S314 - our own page
    title, table, *below = page
    assert [title.tag, table.tag, *{element.tag for element in below}] == [
        "strong",
        "table",
        *(["br"] if below else []),
    ]
    return (
        title.text or "",
        [cell.text or "" for cell in table.iter() if cell.tag in ("th", "td")],
        [line for element in (table, *below) if (line := element.tail) and not line.startswith("... and")],
    )


@pytest.mark.parametrize(
    "release",
    [
        lambda: fastdp.release(VALUES, 1.0, 100.0, seed=1),
        lambda: fastdp.release(VALUES[:3], 1.0, 100.0, threshold=20.0, seed=1),
        lambda: fastdp.ToPS(0.5, 100.0, holdout=600, max_range=256, seed=1).release(VALUES),
        lambda: fastdp.PAK(epsilon=1.0, bound=100.0, delta=1e-7, length=3_000, holdout=300, seed=1).release(VALUES),
    ],
)
def test_a_release_prints_its_own_numbers(release: Any) -> None:
    made = release()
    title, values, theta, *chosen, intervals, guarantee = str(made).splitlines()
    assert numbers(title) == [f"{len(made):,}", *([f"{made.offset:,}"] if made.offset else [])]
    assert numbers(values) == ends(made.values)
    assert numbers(theta) == [f"{made.threshold:g}"]
    assert numbers(intervals) == []
    answer = made.answer
    assert len(chosen) == (0 if answer is None else 3)
    if answer is not None:
        total = made.sum(0, len(made)), *made.interval(0, len(made))
        assert numbers(chosen[0]) == [f"{total[0][0]:.6g}", "95", *(f"{each[0]:.6g}" for each in total[1:])]
        parts = [f"{fraction:.1%}".rstrip("%") for _, fraction in answer.shares]
        assert [each.rstrip("%") for each in numbers(chosen[2])] == parts
        if answer.sums.size > 1:
            assert numbers(chosen[1]) == [f"{answer.sums.size:,}", f"{answer.block:,}"]
    assert numbers(guarantee) == cost(made.guarantee)
    # A notebook shows the same, and the first values with their index in the input.
    head, body, notes = shown_in_a_notebook(made)
    assert [head, *notes] == [
        title,
        *(re.sub("  +", ": ", line.strip(), count=1) for line in (theta, *chosen, intervals, guarantee)),
    ]
    first = made.values[:8]
    assert body[2:] == [text for i, value in enumerate(first) for text in (f"{made.offset + i}", f"{value:.6g}")]
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    axes = made.plot()
    edges = np.linspace(0, len(made), min(len(made), 1_000) + 1).astype(int)
    own = len(axes.get_lines()) > 1
    for line, each in zip(axes.get_lines(), (made, made.revised), strict=False):
        drawn = each.sum(edges[:-1], edges[1:]) / np.diff(edges)
        np.testing.assert_allclose(line.get_ydata(), drawn)
        np.testing.assert_allclose(line.get_xdata(), made.offset + (edges[:-1] + edges[1:]) / 2.0)
    band = np.concatenate([path.vertices[:, 1] for path in axes.collections[0].get_paths()])
    for end in (made.revised if own else made).interval(edges[:-1], edges[1:]):
        assert np.isin(end / np.diff(edges), band).all()
    position, about, *told = axes.get_xlabel().split("\n")
    assert numbers(f"{position} {about}") == ["95", f"{made.threshold:g}"]
    assert numbers(" ".join(told[len(chosen) :])) == cost(made.guarantee)


def test_many_streams_print_their_own_numbers() -> None:
    many = fastdp.release_many(VALUES.reshape(6, 500), 1.0, 100.0, threshold=20.0, seed=1)
    title, values, theta, _, guarantee = str(many).splitlines()
    assert numbers(title) == [f"{len(many):,}", f"{many.values.size:,}"]
    assert (numbers(values), numbers(theta)) == (ends(many.values), ends(many.thresholds))
    assert numbers(guarantee) == cost(many.guarantee)
    head, body, _ = shown_in_a_notebook(many)
    assert head == title
    assert body[2:] == [text for i in range(6) for text in (f"{i}", f"{many[i].values.sum():.6g}")]


def test_a_guarantee_shows_its_derivation_in_a_notebook() -> None:
    made = fastdp.Guarantee(1.0, unit="<b>one</b> & all", derivation=("a < b", "c"))
    assert shown_in_a_notebook(made) == (str(made), ["step", "of the derivation", "1", "a < b", "2", "c"], [])


@pytest.mark.parametrize("confidence", [0.95, 0.9999999])
@pytest.mark.parametrize("given", [{}, {"unit": fastdp.Person("who", 40), "delta": 1e-8, "rows": 5.0, "mean": 2.0}])
def test_a_plan_prints_its_own_numbers(given: dict[str, Any], confidence: float) -> None:
    asked = {"v": ["sum", "median"], "*": "count"}
    plan = fastdp.plan(asked, epsilon=1.0, bounds=9.0, every="1h", windows=200, confidence=confidence, **given)
    lines = str(plan).splitlines()
    expected = [[f"{plan.epsilon:.4g}", *numbers(plan.unit), f"{100 * confidence:.10g}"], ["1"]]
    for each in plan.errors.values():
        value = [] if each.value is None else [f"{each.value:.4g}"]
        expected.append([f"{each.half_width:.4g}", *value, f"{each.std_error:.4g}"])
        expected += [[f"{width:.4g}"] for width in each.longer.values()]
        expected += [numbers(each.drowned)] if each.drowned else []
    expected += [[], []]
    for line in plan.shares.lines:
        expected.append([f"{line.loss:.5g}", f"{plan.shares.share(line):.3f}", str(line.moved)])
    assert [numbers(line) for line in lines] == expected
    assert sum(map(plan.shares.share, plan.shares.lines)) == pytest.approx(1.0)
    # A notebook shows the same numbers.
    page = ElementTree.fromstring(plan._repr_html_().replace("<br>", "<br/>"))  # noqa: S314 - our own page
    (head, cells, notes), (_, costs, _) = map(shown_in_a_notebook, page)
    spans = len({span for each in plan.errors.values() for span in each.longer})
    shown = [numbers(" ".join(cells[at : at + 4 + spans])) for at in range(4 + spans, len(cells), 4 + spans)]
    errors = expected[2 : -2 - len(plan.shares.lines)]
    assert numbers(head.rpartition(". ")[0]) == expected[0]
    assert sorted(chain(*shown)) == sorted(chain(*errors))
    assert len(notes) == sum(bool(each.drowned) for each in plan.errors.values())
    assert numbers(" ".join(costs[6:])) == [*chain(*map(numbers, lines[-len(plan.shares.lines) :]))]


def test_a_ledger_reports_what_was_spent(tmp_path: Path) -> None:
    account = Ledger(tmp_path / "budgets")
    account.set_limit(1.5, None, stream="meters")
    frame = pa.table({"at": np.datetime64("2024-01-01", "s") + 60 * np.arange(3_000), "v": VALUES})
    time = fastdp.Time("at", "1h", start="2024-01-01", stop="2024-01-03")
    for epsilon in (0.25, 0.5):
        fastdp.totals(frame, "v", time, epsilon=epsilon, bound=9.0, ledger=account, stream="meters")
    left, spent = account.remaining("meters"), account.spent("meters")
    (first, *_) = account.report().splitlines()
    assert numbers(first.partition(": ")[2]) == [str(spent.epsilon), str(left.epsilon), "1.5"]
    assert (spent.epsilon, left.epsilon) == (0.75, 0.75)
    head, cells, _ = shown_in_a_notebook(account)
    assert head == repr(account)
    assert cells[5:] == [
        "meters",
        "epsilon = 0.75",
        f"{spent.unit} ({spent.adjacency})",
        "epsilon = 0.75",
        "epsilon = 1.5",
    ]
    for i in range(9):
        account.spend(fastdp.Guarantee(0.5), stream=f"<{i}>")
    assert "... and 2 rows more" in account._repr_html_()
    assert shown_in_a_notebook(account)[1][5::5] == [f"<{i}>" for i in range(8)]


def summary(text: str) -> dict[str, list[str]]:
    """Numbers of a summary's lines; several of one name in order."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        name, _, told = line.strip().partition("  ")
        found.setdefault(name.strip(), []).extend(numbers(told))
    return found


def test_commands_close_with_numbers_of_their_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    at = np.datetime64("2024-01-01", "s") + 60 * np.arange(3_000)
    csv.write_csv(pa.table({"at": at, "v": VALUES, "who": np.arange(3_000) % 300}), "in.csv")
    given = "totals in.csv --time at --every 1h --value v --epsilon 4 --bound 30 --person who --rows 10 --seed 1"
    told = CliRunner().invoke(
        main, [*given.split(), "--start", "2024-01-01", "--stop", "2024-01-03", "-o", "out.csv"]
    )
    assert told.exit_code == 0, told.output
    lines = [line for line in told.stderr.splitlines() if not line.startswith(("Warning", "  missing"))]
    time = fastdp.Time("at", "1h", start="2024-01-01", stop="2024-01-03")
    unit = fastdp.Person("who", 10)
    table = fastdp.totals("in.csv", "v", time, epsilon=4.0, bound=30.0, unit=unit, seed=1)
    written = csv.read_csv("out.csv")
    np.testing.assert_array_equal(written["estimate"].to_numpy(), table.arrow["estimate"].to_numpy())
    expected = list(map(numbers, expected_lines(table)))
    assert [numbers(line) for line in lines[: len(expected)]] == expected
    facts = json.loads(Path("out.csv.json").read_text())
    assert facts["guarantee"] == json.loads(table.guarantee.to_json())

    np.save("in.npy", VALUES)
    given = "release in.npy -o out.npy --epsilon 0.5 --bound 100 --threshold 20 --seed 1"
    told = CliRunner().invoke(main, given.split())
    assert told.exit_code == 0, told.output
    made = fastdp.release(VALUES, 0.5, 100.0, threshold=20.0, seed=1)
    np.testing.assert_array_equal(made.values, np.load("out.npy"))
    assert told.stderr.startswith(f"{made!r}\n")
    shown = summary(told.stderr)
    assert re.fullmatch("[0-9.]+", shown["time"][0])
