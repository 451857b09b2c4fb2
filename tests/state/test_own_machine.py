"""A mechanism of one's own: the program on its tutorial, with everything that its driver promises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fastdp.errors import StateError
from fastdp.state import Publisher

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorials" / "own_mechanism.md"
BATCH, NEXT = [20, 30, 25], [1, 2, 3, 400]


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names that the page's program leaves, run in a folder of its own."""
    machine, driver, _ = [part.split("```")[0] for part in PAGE.read_text().split("```python\n")[1:]]
    program = machine + driver
    assert len(program.splitlines()) <= 44
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(program, str(PAGE), "exec", dont_inherit=True), names)  # noqa: S102 - the page is the project's own
    return names


def fresh(page: dict[str, Any], seed: int = 1) -> Publisher[Any]:
    return Publisher(page["BatchSums"](epsilon=1.0, bound=100), seed=seed)


def test_a_replay_gives_the_same_output(page: dict[str, Any]) -> None:
    assert page["again"] == page["first"]
    assert page["sums"].state.n_seen == 3


def test_a_kept_file_continues_after_the_last_call(page: dict[str, Any]) -> None:
    loaded = Publisher.load("sums.state", machine=page["BatchSums"])
    assert loaded.state == page["sums"].state
    unbroken = fresh(page)
    unbroken.step(BATCH)
    assert loaded.step(NEXT) == unbroken.step(NEXT)
    with pytest.raises(StateError, match="not as this publisher left it"):
        page["sums"].step(NEXT)


def test_bytes_of_another_machine_are_refused(page: dict[str, Any]) -> None:
    class Other(page["BatchSums"]):
        pass

    state = fresh(page).to_bytes()
    with pytest.raises(StateError, match="holds a BatchSums: expected a Other"):
        Publisher.from_bytes(state, machine=Other)
    with pytest.raises(StateError, match="machine = None"):
        Publisher.from_bytes(state)


def test_noise_follows_batch_and_position(page: dict[str, Any]) -> None:
    def noises(*batches: list[int]) -> list[int]:
        sums = fresh(page)
        return [sums.step(batch) - sum(batch) for batch in batches]

    assert noises(BATCH) == noises(BATCH)
    assert len({*noises(BATCH, BATCH, BATCH), *noises([20, 30, 26]), *noises([20, 30, 24])}) > 3
