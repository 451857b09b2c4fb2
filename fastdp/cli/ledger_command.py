"""``fastdp ledger``, and ``--ledger``, which reserves budget for another command."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import click

from fastdp.cli.options import fields_of, with_options
from fastdp.cli.terminal import plain_errors
from fastdp.errors import ParameterError, StateError
from fastdp.kinds import Json
from fastdp.ledger import Entry, Ledger, Reservation
from fastdp.ledger.ledger import in_words
from fastdp.noise.key import read_ledger_key
from fastdp.record import values_of

if TYPE_CHECKING:
    from fastdp.cli.resume import Resume

F = TypeVar("F", bound=Callable[..., object])
EPILOG = """
\b
Examples
  fastdp ledger limit budget --epsilon 2
  fastdp ledger limit budget --stream meter --epsilon 1
  fastdp ledger limit budget --stream visits --epsilon 10 --per 1mo
  fastdp release meter.npy -o private.npy --epsilon 0.1 --bound 10000 --ledger budget --stream meter
  fastdp ledger spent budget
"""
_file = click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
_of_stream = with_options("""
--stream NAME  This stream only.  [default: all]
--ledger-key-file
""")


@click.group(epilog=EPILOG)
def ledger() -> None:
    """Account for privacy budgets: releases of each stream, and the budget left.

    "fastdp release", "synthesize", "totals", "counts" and "means" write to a ledger with --ledger.
    """


@ledger.command()
@_file
@_of_stream
def show(path: Path, stream: str | None, ledger_key_file: Path | None) -> None:
    """List the releases: number, time, state, stream, part of it, and guarantee."""
    with plain_errors():
        for entry in _opened(path, ledger_key_file).entries(stream):
            note = f"  # {entry.note}" if entry.note else ""
            said = f"{entry.id}  {entry.time}  {entry.state:<9}  {entry.stream!r}  {entry.extent}"
            mechanism = entry.mechanism.get("class") if isinstance(entry.mechanism, dict) else entry.mechanism
            by = f"{mechanism}: " if isinstance(mechanism, str) else ""
            click.echo(f"{said}  {by}{entry.guarantee}{note}")


@ledger.command()
@_file
@_of_stream
def spent(path: Path, stream: str | None, ledger_key_file: Path | None) -> None:
    """Print each stream's cost, budget left, and a person's loss in a year."""
    with plain_errors():
        click.echo(_opened(path, ledger_key_file).report(stream))


@ledger.command()
@_file
@with_options("""
--head SEAL  A seal that this command printed earlier: its line must still be there.
--ledger-key-file
""")
def verify(path: Path, head: str | None, ledger_key_file: Path | None) -> None:
    """Check every line and total, and print the last line's seal. No other command looks for changes to the file.

    Keep the seal elsewhere: only it detects missing last lines.
    """
    with plain_errors():
        found = _opened(path, ledger_key_file).verify(head)
        click.echo(f"{path}: {found.lines} lines, all seals valid\nhead {found.head}")
        if found.reserved:
            listed = ", ".join(map(str, found.reserved))
            click.echo(f"Reserved and never committed, so counted as spent: {listed}")


@ledger.command()
@_file
@with_options("""
--stream NAME  For this stream only.  [default: each stream without a limit of its own]
--epsilon E|none  Most that one stream may cost, or none for no limit.  [default: as it was]
--delta D|none  The same for delta.  [default: as it was]
--per LENGTH  The limit renews: it holds for a person in each calendar period of the data's time, such as 1d, 1mo or
    1y, whenever the releases are made.  [default: once and for all]
--note TEXT  Such as who decided it.
--ledger-key-file
""")
def limit(
    path: Path,
    ledger_key_file: Path | None,
    stream: str | None,
    per: str | None,
    note: str | None,
    **amounts: str | None,
) -> None:
    """Record a limit; the last one recorded holds. A missing ledger is created.

    Amounts that a stream's own limit omits follow the limit of all streams.
    """
    with plain_errors():
        account = _opened(path, ledger_key_file, create=True)
        given = _amount(amounts["epsilon"]), _amount(amounts["delta"])
        account.set_limit(*given, stream=stream, per=per, note=note or "")
        whose = "each stream without a limit of its own" if stream is None else f"stream {stream!r}"
        when = "" if per is None else f" in each period of {per}"
        click.echo(f"{path}: limit for {whose}{when}: {in_words(account.limits(per)[stream])}")


def _amount(text: str | None) -> float | EllipsisType | None:
    if text is None:
        return ...
    if text == "none":
        return None
    try:
        return float(text)
    except ValueError:
        raise click.UsageError(f"{text!r} is neither a number nor 'none'.") from None


def _opened(path: Path, key_file: Path | None, *, create: bool = False) -> Ledger:
    return Ledger(path, key=read_ledger_key(key_file), create=create)


#: Longest note that a command writes.
NOTE = 1000


@dataclass(frozen=True)
class Account:
    """Ledger options of a command, whose release is reserved before it begins."""

    ledger: Path | None
    stream: str | None
    part: str | None
    limit: float | None
    limit_delta: float | None
    ledger_key_file: Path | None

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """The ledger options; click.UsageError if one lacks another."""
        made = cls(**{"part": None, **fields_of(cls, options)})
        if made.ledger is None:
            for name, value in values_of(made, "part", "limit", "limit_delta", "ledger_key_file").items():
                if value is not None:
                    raise click.UsageError(f"--{name.replace('_', '-')} needs --ledger.")
        elif made.stream is None:
            raise click.UsageError("--ledger needs --stream, the name of the stream whose budget is spent.")
        return made

    @contextmanager
    def paid(self, publisher: Any, source: str, resume: Resume) -> Iterator[Json | None]:
        """Reserve the publisher's epsilon before the data are read; the block's end commits it.

        A resumed release uses its reservation, or a new one if that was cancelled; an error refunds nothing, because
        it may depend on the data.  Yields the entry's identity.
        """
        if self.ledger is None:
            yield None
            return
        ledger = self._opened(new=resume.reservation is None)
        earlier = self._earlier(ledger, resume) if resume.kept else None
        if earlier is not None:
            reservation = Reservation(ledger, earlier)
        else:
            if resume.new:
                # Its name is on disk before the ledger knows it: a run killed in between is not charged again.
                resume.begin()
            with resume.unless_refused():
                note = f"{_named(resume)}input {source}"[:NOTE]
                reservation = ledger.reserve(publisher, stream=str(self.stream), part=self.part, note=note)
        # A command that is killed from here on leaves the ledger as one file.
        ledger.close()
        with closing(ledger), reservation:
            yield _described(reservation.entry)

    @contextmanager
    def opened(self) -> Iterator[Ledger | None]:
        """The open ledger, for a release that reserves by itself; or None."""
        if self.ledger is None:
            yield None
            return
        with closing(self._opened(new=True)) as ledger:
            yield ledger

    def _opened(self, *, new: bool) -> Ledger:
        path = Path(str(self.ledger))
        if new and self.limit is None and not path.exists():
            # A new one would have no limit at all, and the name may be a slip.
            raise ParameterError(
                f"--ledger {path}: no such file; expected a ledger (fastdp ledger limit makes one), or "
                "--limit for a new one"
            )
        key, create = read_ledger_key(self.ledger_key_file), new and self.limit is not None
        return Ledger(path, limit_epsilon=self.limit, limit_delta=self.limit_delta, key=key, create=create)

    def _earlier(self, ledger: Ledger, resume: Resume) -> Entry | None:
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
        if self.ledger is None or self.stream is None:
            return []
        cost = _opened(self.ledger, self.ledger_key_file).spent(self.stream)
        free = " (a simulation costs nothing)" if publisher.guarantee.simulated else ""
        return [("ledger", f"{self.ledger}: stream {self.stream!r} has cost {in_words(cost)}{free}")]


def _named(resume: Resume) -> str:
    return f"release {resume.token}: " if resume.kept else ""


def _described(entry: Entry) -> Json:
    return {"id": entry.id, "time": entry.time, "nonce": entry.nonce}
