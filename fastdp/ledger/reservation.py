"""Budget that is set aside for one release."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from fastdp.ledger.entry import Entry

if TYPE_CHECKING:
    from fastdp.ledger.ledger import Ledger


class Reservation:
    """Budget set aside for one release; see :meth:`Ledger.reserve`.

    Attributes
    ----------
    entry : Entry
        As it is recorded.
    """

    def __init__(self, ledger: Ledger, made: Entry, cancel_on: tuple[type[Exception], ...] = ()) -> None:
        self._ledger = ledger
        self._cancel_on = cancel_on
        self.entry = made

    def commit(self, stop: int | None = None) -> Entry:
        """Record that the release has happened.

        Parameters
        ----------
        stop : int, optional
            Where it ended, within what was reserved; positions from there on were not looked at.

        Notes
        -----
        From here on no error gives the budget back, even if this call fails (:meth:`keep`).
        """
        self.keep()
        self.entry = self._ledger._end(self.entry, "commit", stop)
        return self.entry

    def cancel(self) -> Entry:
        """Record that nothing was released and nothing will be: the budget is free again."""
        self.entry = self._ledger._end(self.entry, "cancel")
        return self.entry

    def keep(self) -> None:
        """Declare that a release begins: from now on no error gives the budget back."""
        self._cancel_on = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.entry.state != "reserved":
            return
        if kind is None:
            self.commit()
        elif issubclass(kind, self._cancel_on):
            self.cancel()
