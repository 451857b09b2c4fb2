"""``--ledger``: a command's release is reserved in a ledger before it begins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import click


class Paid(NamedTuple):
    """What a release was reserved under.

    Attributes
    ----------
    keep : function
        To be called before the first released value is written anywhere: from then on nothing is given back.
    reservation : dict or None
        Number and time of the ledger's entry, for a state file; None without a ledger.
    """

    keep: Callable[[], None]
    reservation: dict[str, Any] | None


@dataclass(frozen=True)
class Spending:
    """The options that tell a ledger, as they were given."""

    ledger: Path | None
    stream: str | None
    part: str | None
    limit: float | None
    limit_delta: float | None
    ledger_key_file: Path | None

    def __post_init__(self) -> None:
        """Some need each other; click.UsageError otherwise."""
        if self.ledger is None:
            for name in ("stream", "part", "limit", "limit_delta", "ledger_key_file"):
                if getattr(self, name) is not None:
                    raise click.UsageError(f"--{name.replace('_', '-')} needs --ledger.")
        elif self.stream is None:
            raise click.UsageError("--ledger needs --stream, the name of the stream whose budget is spent.")

    @contextmanager
    def reserved(self, publisher: Any, source: str, *, refundable: bool) -> Iterator[Paid]:
        """Set the publisher's epsilon aside; the block's end commits it.

        Parameters
        ----------
        publisher : publisher
            Whose guarantee is spent.
        source : str
            The input, for the ledger's note.
        refundable : bool
            Whether an error of fastdp's within the block shows that nothing was released.

        Yields
        ------
        Paid
        """
        if self.ledger is None or self.stream is None:
            yield UNPAID
            return
        from fastdp.cli.key_file import read_ledger_key
        from fastdp.errors import FastDPError, ParameterError
        from fastdp.ledger import Ledger

        if self.limit is None and not self.ledger.exists():
            # A new one would have no limit at all, and the name may be a slip.
            raise ParameterError(
                f"--ledger {self.ledger}: no such file; expected a ledger (fastdp ledger limit makes one), or "
                "--limit for a new one"
            )
        ledger = Ledger(
            self.ledger,
            limit_epsilon=self.limit,
            limit_delta=self.limit_delta,
            key=read_ledger_key(self.ledger_key_file),
            create=self.limit is not None,
        )
        with ledger.reserve(
            publisher,
            stream=self.stream,
            part=self.part,
            note=f"input {source}"[:NOTE],
            cancel_on=(FastDPError,) if refundable else (),
        ) as reservation:
            yield _paid(reservation)

    @contextmanager
    def resumed(self, publisher: Any, source: str, reserved: dict[str, Any] | None) -> Iterator[Paid]:
        """Go on under the reservation that an earlier run made; the block's end commits it, if that did not.

        One that was cancelled was for nothing; there is a new one then.

        Parameters
        ----------
        publisher, source
            As for :meth:`reserved`.
        reserved : dict or None
            Of the earlier run's :class:`Paid`.

        Raises
        ------
        StateError
            If the ledger is not there or holds no such reservation.
        """
        if self.ledger is None or self.stream is None:
            yield UNPAID
            return
        from fastdp.cli.key_file import read_ledger_key
        from fastdp.errors import StateError
        from fastdp.ledger import Ledger
        from fastdp.ledger.ledger import Reservation

        ledger = Ledger(self.ledger, key=read_ledger_key(self.ledger_key_file), create=False)
        mine = [each for each in ledger.entries(self.stream) if _described(each) == reserved]
        if not mine:
            raise StateError(
                f"ledger {str(self.ledger)!r}: the reservation {reserved} of stream {self.stream!r}, under which "
                "this release began, is not there; expected the ledger that holds it, or a new --state file"
            )
        if mine[0].state == "cancelled":
            with self.reserved(publisher, source, refundable=True) as paid:
                yield paid
            return
        with Reservation(ledger, mine[0]) as reservation:
            yield _paid(reservation)

    def summary(self, publisher: Any) -> list[tuple[str, str]]:
        """What the stream has cost by now, for the command's last words."""
        if self.ledger is None or self.stream is None:
            return []
        from fastdp.cli.key_file import read_ledger_key
        from fastdp.ledger import Ledger

        spent = Ledger(self.ledger, key=read_ledger_key(self.ledger_key_file)).spent(self.stream)
        free = " (a simulation costs nothing)" if publisher.guarantee.simulated else ""
        return [("ledger", f"{self.ledger}: stream {self.stream!r} has cost {in_words(spent)}{free}")]


#: Longest note that a command writes.
NOTE = 1000


#: Where there is no ledger, nothing could be given back.
UNPAID = Paid(lambda: None, None)


def _paid(reservation: Any) -> Paid:
    return Paid(reservation.keep, _described(reservation.entry))


def _described(entry: Any) -> dict[str, Any]:
    """Enough to know an entry again, in a ledger that was made anew too."""
    return {"id": entry.id, "time": entry.time}


def in_words(loss: Any) -> str:
    """Epsilon with all its digits, and delta if there is one."""
    return f"epsilon = {loss.epsilon!r}" + (f", delta = {loss.delta!r}" if loss.delta else "")
