"""Who works on slabs, and in how many pieces."""

from __future__ import annotations

from itertools import count as numbers
from threading import Barrier, Event, Thread, get_ident

import pytest

from fastdp.streams import release_many as rows
from fastdp.streams.release_many import concurrently, even


def test_the_calling_thread_works_beside_the_others() -> None:
    """Three slabs that wait for each other need three threads, of which the caller is one."""
    meeting, seen = Barrier(3), set()

    def work(_slab: int) -> None:
        meeting.wait(60)
        seen.add(get_ident())

    concurrently(3, work, range(3))
    assert len(seen) == 3
    assert get_ident() in seen


@pytest.mark.parametrize("wrong", [{3}, {4, 3, 20}, set(range(40))])
def test_the_first_error_in_the_order_of_slabs_is_raised(wrong) -> None:
    """After batches 3 and 4 fail together, nothing is begun."""
    later, begun = Barrier(2), []

    def work(slab: int) -> None:
        begun.append(slab)
        if slab in (3, 4) and 4 in wrong:
            later.wait(60)
        if slab in wrong:
            raise ArithmeticError(slab)

    with pytest.raises(ArithmeticError, match=f"^{min(wrong)}$"):
        concurrently(2, work, range(40))
    assert 4 not in wrong or max(begun) <= 4


def test_no_thread_works_on_where_another_cannot_start(monkeypatch) -> None:
    begun, over = [], Event()

    class Scarce(Thread):
        def start(self) -> None:
            if begun:
                raise RuntimeError("can't start new thread")
            begun.append(self)
            super().start()

    def work(_slab: int) -> None:
        # The running thread ends here if concurrently does not stop it.
        if over.is_set():
            raise InterruptedError

    monkeypatch.setattr(rows, "Thread", Scarce)
    try:
        with pytest.raises(RuntimeError, match="can't start"):
            concurrently(3, work, numbers())
        assert not begun[0].is_alive()
    finally:
        over.set()


def test_an_interrupt_waits_for_the_slabs_that_are_worked_on(monkeypatch) -> None:
    caller, both, goes_on, joins, done = get_ident(), Barrier(2), Event(), [], []

    class Awaited(Thread):
        def join(self, timeout: float | None = None) -> None:
            joins.append(self)
            if len(joins) == 1:
                raise KeyboardInterrupt
            goes_on.set()
            super().join(timeout)

    def work(slab: int) -> None:
        both.wait(60)
        if get_ident() != caller:
            goes_on.wait(60)
            done.append(slab)

    monkeypatch.setattr(rows, "Thread", Awaited)
    try:
        with pytest.raises(KeyboardInterrupt):
            concurrently(2, work, range(2))
        assert len(done) == 1
    finally:
        goes_on.set()


@pytest.mark.parametrize(
    ("count", "most", "threads", "wanted"),
    [(4000, 655, 1, 572), (4000, 655, 2, 500), (20, 104, 2, 10), (3, 1, 2, 1), (1, 8, 4, 1), (0, 8, 4, 1)],
)
def test_slabs_are_even(count, most, threads, wanted) -> None:
    assert even(count, most, threads) == wanted <= most
