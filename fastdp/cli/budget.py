"""``--ledger``: a command's release is reserved in a ledger before it begins."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
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
    ledger_key_file: Path | None

    def __post_init__(self) -> None:
        """Some need each other; click.UsageError otherwise."""
        if self.ledger is None:
            for name in ("stream", "part", "limit", "ledger_key_file"):
                if getattr(self, name) is not None:
                    raise click.UsageError(f"--{name.replace('_', '-')} needs --ledger.")
        elif self.stream is None:
            raise click.UsageError("--ledger needs --stream, the name of the stream whose budget is spent.")

    def reserved(self, publisher: Any, source: str, *, refundable: bool) -> AbstractContextManager[object]:
        """Set the publisher's epsilon aside; the block's end commits it.

        Parameters
        ----------
        publisher : publisher
            Whose guarantee is spent.
        source : str
            The input, for the ledger's note.
        refundable : bool
            Whether an error of fastdp's within the block shows that no output appeared.
        """
        if self.ledger is None or self.stream is None:
            return nullcontext()
        from fastdp.cli.key_file import read_ledger_key
        from fastdp.errors import FastDPError
        from fastdp.ledger import Ledger

        ledger = Ledger(self.ledger, limit_epsilon=self.limit, key=read_ledger_key(self.ledger_key_file))
        return ledger.reserve(
            publisher,
            stream=self.stream,
            part=self.part,
            note=f"input {source}"[:NOTE],
            cancel_on=(FastDPError,) if refundable else (),
        )

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


def in_words(loss: Any) -> str:
    """Epsilon with all its digits, and delta if there is one."""
    return f"epsilon = {loss.epsilon!r}" + (f", delta = {loss.delta!r}" if loss.delta else "")
