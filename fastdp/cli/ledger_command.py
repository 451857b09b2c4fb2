"""``fastdp ledger``: what was spent on which stream, and how much may be."""

from __future__ import annotations

import math
from pathlib import Path
from types import EllipsisType
from typing import TYPE_CHECKING, Any

import click

from fastdp.cli.errors import plain_errors
from fastdp.cli.options import in_words, ledger_key_option

if TYPE_CHECKING:
    from fastdp.ledger import Ledger

EPILOG = """
\b
Examples
  fastdp ledger limit budget --epsilon 2
  fastdp ledger limit budget --stream meter --epsilon 1
  fastdp release meter.npy -o private.npy --epsilon 0.1 --bound 10000 --ledger budget --stream meter
  fastdp ledger spent budget
"""
_file = click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
_stream = click.option("--stream", metavar="NAME", help="This stream only.  [default: all]")


@click.group(epilog=EPILOG)
def ledger() -> None:
    """Account for privacy budgets: what was released on which stream, and what is left.

    A ledger is a file, and only grows. "fastdp release", "synthesize", "totals", "counts" and
    "means" write to it with --ledger.
    """


@ledger.command()
@_file
@_stream
@ledger_key_option
def show(path: Path, stream: str | None, ledger_key_file: Path | None) -> None:
    """List the releases: number, time, state, stream, which part of it, and the guarantee."""
    with plain_errors():
        for entry in _opened(path, ledger_key_file).entries(stream):
            note = f"  # {entry.note}" if entry.note else ""
            said = f"{entry.id}  {entry.time}  {entry.state:<9}  {entry.stream!r}  {entry.extent}"
            click.echo(f"{said}  {_mechanism(entry.mechanism)}{entry.guarantee}{note}")


@ledger.command()
@_file
@_stream
@ledger_key_option
def spent(path: Path, stream: str | None, ledger_key_file: Path | None) -> None:
    """Print what each stream has cost, and what its limit leaves."""
    with plain_errors():
        account = _opened(path, ledger_key_file)
        names = account.streams if stream is None else [stream]
        if not names:
            click.echo("No releases yet.")
        for name in names:
            cost, limit, rest = account.spent(name), account.limit(name), account.remaining(name)
            bounded = min(limit) < math.inf
            left = f"; left {_within(rest)} of {_within(limit)}" if bounded else "; no limit"
            click.echo(f"{name!r}: {in_words(cost)} for {cost.unit} ({cost.adjacency}){left}")


@ledger.command()
@_file
@click.option(
    "--head", metavar="SEAL", help="A seal that this command printed earlier: its line must still be there."
)
@ledger_key_option
def verify(path: Path, head: str | None, ledger_key_file: Path | None) -> None:
    """Check every line and total, and print the last line's seal. No other command looks for changes to the file.

    Keep the seal somewhere else: only with it can missing last lines be noticed.
    """
    with plain_errors():
        found = _opened(path, ledger_key_file).verify(head)
        click.echo(f"{path}: {found.lines} lines, all seals valid\nhead {found.head}")
        if found.reserved:
            listed = ", ".join(map(str, found.reserved))
            click.echo(f"Reserved and never committed, so counted as spent: {listed}")


@ledger.command()
@_file
@click.option(
    "--stream", metavar="NAME", help="For this stream only.  [default: each stream without a limit of its own]"
)
@click.option(
    "--epsilon",
    metavar="E|none",
    help="Most that one stream may cost, or none for no limit.  [default: as it was]",
)
@click.option("--delta", metavar="D|none", help="The same for delta.  [default: as it was]")
@click.option("--note", metavar="TEXT", default="", help="Such as who decided it.")
@ledger_key_option
def limit(
    path: Path,
    stream: str | None,
    epsilon: str | None,
    delta: str | None,
    note: str,
    ledger_key_file: Path | None,
) -> None:
    """Record a limit; the last one recorded holds. The ledger is made if it is not there.

    What a stream's own limit does not name follows the limit of all streams.
    """
    with plain_errors():
        account = _opened(path, ledger_key_file, create=True)
        account.set_limit(_named(epsilon), _named(delta), stream=stream, note=note)
        whose = "each stream without a limit of its own" if stream is None else f"stream {stream!r}"
        click.echo(f"{path}: limit for {whose}: {_within(account.limits()[stream])}")


def _named(amount: str | None) -> float | EllipsisType | None:
    """A limit as the ledger takes it: none at all, or left as it was."""
    if amount is None:
        return ...
    if amount == "none":
        return None
    try:
        return float(amount)
    except ValueError:
        raise click.UsageError(f"{amount!r} is neither a number nor 'none'.") from None


def _opened(path: Path, key_file: Path | None, *, create: bool = False) -> Ledger:
    from fastdp.ledger import Ledger
    from fastdp.noise.key import read_ledger_key

    return Ledger(path, key=read_ledger_key(key_file), create=create)


def _within(budget: Any) -> str:
    """The parts of a budget that have a limit."""
    named = (("epsilon", budget.epsilon), ("delta", budget.delta))
    return ", ".join(f"{name} = {amount!r}" for name, amount in named if amount < math.inf) or "none"


def _mechanism(described: Any) -> str:
    """The class of what released, or its description."""
    if isinstance(described, dict):
        described = described.get("class")
    return f"{described}: " if isinstance(described, str) else ""
