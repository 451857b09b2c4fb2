"""``--ledger``: a command's release is reserved in a ledger before it begins."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

if TYPE_CHECKING:
    from fastdp.cli.resume import Resume
    from fastdp.ledger import Ledger
    from fastdp.ledger.entry import Entry


@dataclass(frozen=True)
class LedgerOptions:
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
            for name in ("part", "limit", "limit_delta", "ledger_key_file"):
                if getattr(self, name) is not None:
                    raise click.UsageError(f"--{name.replace('_', '-')} needs --ledger.")
        elif self.stream is None:
            raise click.UsageError("--ledger needs --stream, the name of the stream whose budget is spent.")

    @contextmanager
    def paid(self, publisher: Any, source: str, resume: Resume | None = None) -> Iterator[dict[str, Any] | None]:
        """Set the publisher's epsilon aside before the data are read; the block's end commits it.

        A release that goes on does so under the reservation that an earlier run made; one that was cancelled was for
        nothing, there is a new one then.  No error within the block gives anything back: it may depend on the data,
        and then it says something about them.

        Parameters
        ----------
        publisher : publisher
            Whose guarantee is spent.
        source : str
            The input, for the ledger's note.
        resume : Resume, optional
            The release over all runs of its command.

        Yields
        ------
        dict or None
            What identifies the ledger's entry, for a state file; None without a ledger.

        Raises
        ------
        BudgetError
            If the ledger refuses the release.
        StateError
            If the ledger is not there or does not hold the earlier run's reservation.
        """
        if self.ledger is None or self.stream is None:
            yield None
            return
        from fastdp.ledger.ledger import Reservation

        ledger = self._opened(new=resume is None or resume.reservation is None)
        earlier = None if resume is None else self._earlier(ledger, resume)
        if earlier is not None:
            reservation = Reservation(ledger, earlier)
        else:
            if resume is not None and resume.new:
                # Its name is on disk before the ledger knows it: a run killed in between is not charged again.
                resume.begin()
            named = "" if resume is None else _named(resume)
            note = f"{named}input {source}"[:NOTE]
            reservation = ledger.reserve(publisher, stream=self.stream, part=self.part, note=note)
        # A command that is killed from here on leaves the ledger as one file.
        ledger.close()
        with closing(ledger), reservation:
            yield _described(reservation.entry)

    @contextmanager
    def opened(self) -> Iterator[Ledger | None]:
        """The ledger for a release that reserves in it by itself; None without one."""
        if self.ledger is None:
            yield None
            return
        with closing(self._opened(new=True)) as ledger:
            yield ledger

    def _opened(self, *, new: bool) -> Ledger:
        """The ledger; ``new`` says whether it may be made."""
        from fastdp.errors import ParameterError
        from fastdp.ledger import Ledger
        from fastdp.noise.key_file import read_ledger_key

        path = cast("Path", self.ledger)
        if new and self.limit is None and not path.exists():
            # A new one would have no limit at all, and the name may be a slip.
            raise ParameterError(
                f"--ledger {path}: no such file; expected a ledger (fastdp ledger limit makes one), or "
                "--limit for a new one"
            )
        key, create = read_ledger_key(self.ledger_key_file), new and self.limit is not None
        return Ledger(path, limit_epsilon=self.limit, limit_delta=self.limit_delta, key=key, create=create)

    def _earlier(self, ledger: Ledger, resume: Resume) -> Entry | None:
        """What an earlier run has reserved for this release, if anything; StateError if that is gone."""
        from fastdp.errors import StateError

        noted, named = resume.reservation, _named(resume)
        mine = [
            each for each in ledger.entries(self.stream) if _described(each) == noted or each.note.startswith(named)
        ]
        if noted is not None and not any(_described(each) == noted for each in mine):
            raise StateError(
                f"ledger {str(self.ledger)!r}: the reservation {noted} of stream {self.stream!r}, under which "
                "this release began, is not there; expected the ledger that holds it, or a new --state file"
            )
        live = [each for each in mine if each.state != "cancelled"]
        return live[-1] if live else None

    def summary(self, publisher: Any) -> list[tuple[str, str]]:
        """What the stream has cost so far, for the command's last words."""
        if self.ledger is None or self.stream is None:
            return []
        from fastdp.ledger import Ledger
        from fastdp.noise.key_file import read_ledger_key

        spent = Ledger(self.ledger, key=read_ledger_key(self.ledger_key_file), create=False).spent(self.stream)
        free = " (a simulation costs nothing)" if publisher.guarantee.simulated else ""
        return [("ledger", f"{self.ledger}: stream {self.stream!r} has cost {in_words(spent)}{free}")]


#: Longest note that a command writes.
NOTE = 1000


def _named(resume: Resume) -> str:
    """How a release's entry can be found again."""
    return f"release {resume.token}: "


def _described(entry: Entry) -> dict[str, Any]:
    """Enough to recognise an entry, even in a ledger that was made again."""
    return {"id": entry.id, "time": entry.time, "nonce": entry.nonce}


def in_words(loss: Any) -> str:
    """Epsilon with all its digits, and delta and rho if there are any."""
    said = f"epsilon = {loss.epsilon!r}" + (f", delta = {loss.delta!r}" if loss.delta else "")
    return said + (f", rho = {loss.rho!r}" if getattr(loss, "rho", math.inf) < math.inf else "")
