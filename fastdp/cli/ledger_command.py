"""``fastdp ledger``: methods of :class:`fastdp.Ledger` on a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from fastdp.cli import TEXTS
from fastdp.cli.options import Public, arguments, flags, options
from fastdp.cli.places import option
from fastdp.cli.terminal import plain_errors
from fastdp.kinds import Json
from fastdp.ledger import Ledger
from fastdp.ledger.ledger import in_words
from fastdp.noise.key import read_ledger_key

STREAM = option("of_streams")


def _show(account: Ledger, given: Json) -> None:
    """List the releases: number, time, state, stream, part and guarantee."""
    for entry in account.entries(given["stream"]):
        mechanism = entry.mechanism.get("class") if isinstance(entry.mechanism, dict) else entry.mechanism
        by, note = f"{mechanism}: " if mechanism else "", f"  # {entry.note}" if entry.note else ""
        said = f"{entry.id}  {entry.time}  {entry.state:<9}  {entry.stream!r}  {entry.extent}"
        click.echo(f"{said}  {by}{entry.guarantee}{note}")


def _spent(account: Ledger, given: Json) -> None:
    """Print each stream's cost, budget left, and a person's loss in a year."""
    click.echo(account.report(given["stream"]))


def _verify(account: Ledger, given: Json) -> None:
    """Check every line and total, and print the last line's seal.

    "spent" and releases refuse altered sums; no other command checks the lines. Keep the seal elsewhere: only it
    detects missing last lines.
    """
    found = account.verify(given["head"])
    click.echo(f"{given['path']}: {found.lines} lines, all seals valid\nhead {found.head}")
    if found.reserved:
        click.echo(f"Reserved and never committed, so counted as spent: {', '.join(map(str, found.reserved))}")


def _limit(account: Ledger, given: Json) -> None:
    """Record a limit; the last one recorded holds. A missing ledger is created.

    Amounts that a stream's own limit omits follow the limit of all streams; none is no limit.
    """
    account.set_limit(**arguments(Ledger.set_limit, given), stream=given["stream"])
    whose = "each stream without a limit of its own" if given["stream"] is None else f"stream {given['stream']!r}"
    when = "" if given["per"] is None else f" in each period of {given['per']}"
    told = in_words(account.limits(given["per"])[given["stream"]])
    click.echo(f"{given['path']}: limit for {whose}{when}: {told}")


def _command(
    name: str, run: Callable[[Ledger, Json], None], called: Public | None, *more: click.Parameter
) -> click.Command:
    def call(**given: Any) -> None:
        with plain_errors(flags(called) if called else {}):
            key = read_ledger_key(given["ledger_key_file"])
            run(Ledger(given["path"], key=key, create=name == "limit"), given)

    params = [click.Argument(["path"], metavar="FILE", type=click.Path(path_type=Path)), *more]
    params += [
        each for each in (options({"": called}) if called else []) if each.name not in {one.name for one in params}
    ]
    return click.Command(name, params=[*params, option("sealing_key")], callback=call, help=run.__doc__)


ledger = click.Group(
    "ledger",
    {
        "limit": _command("limit", _limit, Ledger.set_limit, STREAM),
        "show": _command("show", _show, None, STREAM),
        "spent": _command("spent", _spent, None, STREAM),
        "verify": _command("verify", _verify, Ledger.verify),
    },
    epilog=TEXTS["commands"]["ledger"]["epilog"],
    help="""Account for privacy budgets: releases of each stream, and the budget left.

    "fastdp release", "synthesize", "totals", "counts", "means" and "aggregate" write to a ledger with --ledger.
    """,
)
