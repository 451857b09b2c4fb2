"""A mechanism of one's own: the program on docs/state.md, with everything that its driver promises."""

from __future__ import annotations

import copy
import threading
from pathlib import Path
from typing import Any

import pytest

from fastdp.errors import DataError, StateError
from fastdp.state import Publisher

PAGE = Path(__file__).resolve().parents[2] / "docs" / "state.md"
BATCH, NEXT = [20, 30, 25], [1, 2, 3, 400]


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names that the page's program leaves, run in a folder of its own."""
    section = PAGE.read_text().split("## Your own mechanism\n")[1].split("\n## ")[0]
    (program,) = [part.split("```")[0] for part in section.split("```python\n")[1:]]
    assert len(program.splitlines()) <= 40
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


@pytest.mark.parametrize("altered", [[20, 30, 26], [20, 30], [30, 20, 25]])
def test_an_altered_replay_is_refused(page: dict[str, Any], altered: list[int]) -> None:
    waiting = Publisher.load("sums.state", machine=page["BatchSums"], replay=True)
    with pytest.raises(DataError, match="differs from what the state file recorded"):
        waiting.step(altered)
    assert waiting.step(BATCH) == page["first"]


@pytest.mark.parametrize("key", [None, bytes(range(32))])
def test_saved_files_and_bytes_continue(page: dict[str, Any], key: bytes | None) -> None:
    sums = fresh(page)
    sums.step(BATCH)
    sums.save("saved.state", key)
    state = sums.to_bytes(key)
    expected = sums.step(NEXT)
    for twin in (
        Publisher.load("saved.state", key, machine=page["BatchSums"]),
        Publisher.from_bytes(state, key, machine=page["BatchSums"]),
    ):
        assert twin.machine == sums.machine
        assert twin.step(NEXT) == expected
    assert len(state) <= 512


def test_bytes_of_another_machine_are_refused(page: dict[str, Any]) -> None:
    class Other(page["BatchSums"]):
        pass

    state = fresh(page).to_bytes()
    with pytest.raises(StateError, match="holds a BatchSums: expected a Other"):
        Publisher.from_bytes(state, machine=Other)
    with pytest.raises(StateError, match="machine = None"):
        Publisher.from_bytes(state)


def test_a_copy_has_noise_of_its_own(page: dict[str, Any]) -> None:
    sums = fresh(page)
    sums.step(BATCH)
    twin = copy.copy(sums)
    assert twin.state == sums.state
    assert [twin.step(NEXT) for _ in range(4)] != [sums.step(NEXT) for _ in range(4)]


def test_noise_follows_batch_and_position(page: dict[str, Any]) -> None:
    def noises(*batches: list[int]) -> list[int]:
        sums = fresh(page)
        return [sums.step(batch) - sum(batch) for batch in batches]

    assert noises(BATCH) == noises(BATCH)
    assert len({*noises(BATCH, BATCH, BATCH), *noises([20, 30, 26]), *noises([20, 30, 24])}) > 3


def test_a_refused_batch_changes_nothing(page: dict[str, Any]) -> None:
    sums, unbroken = fresh(page), fresh(page)
    for wrong in ([], [0.5], [[1]]):
        with pytest.raises(DataError, match="expected whole numbers"):
            sums.step(wrong)
    assert sums.step(BATCH) == unbroken.step(BATCH)


def test_two_threads_are_refused(page: dict[str, Any]) -> None:
    refused: list[str] = []

    class Meanwhile(page["BatchSums"]):
        def step(self, state: Any, batch: Any, key: Any) -> Any:
            def call() -> None:
                with pytest.raises(StateError) as error:
                    sums.step(NEXT)
                refused.append(str(error.value))

            thread = threading.Thread(target=call)
            thread.start()
            thread.join()
            return super().step(state, batch, key)

    sums: Publisher[Any] = Publisher(Meanwhile(epsilon=1.0, bound=100), seed=1)
    sums.step(BATCH)
    assert refused == ["Publisher.step was called from two threads at once; expected one call at a time"]
    assert sums.state.n_seen == len(BATCH)
