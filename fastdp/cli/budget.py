"""``--ledger``: a command's release is reserved in a ledger before it begins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click


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
    def reserved(self, publisher: Any, source: str, *, refundable: bool) -> Iterator[Callable[[], None]]:
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
        function
            To be called before the first released value is written anywhere: from then on nothing is given back.
        """
        if self.ledger is None or self.stream is None:
            yield unpaid
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
            yield reservation.keep

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


def unpaid() -> None:
    """Where there is no ledger, nothing could be given back."""


def in_words(loss: Any) -> str:
    """Epsilon with all its digits, and delta if there is one."""
    return f"epsilon = {loss.epsilon!r}" + (f", delta = {loss.delta!r}" if loss.delta else "")
