"""``fastdp plan``: errors and shares before any data."""

from __future__ import annotations

from typing import Any

import click

import fastdp
from fastdp.cli.options import with_options
from fastdp.cli.tables_command import OF_COLUMNS, SWITCH, bounds_of, columns_of, rows_of, unit_of
from fastdp.cli.terminal import running

EPILOG = """
\b
Examples
  fastdp plan --stat kwh=sum,mean --bound kwh=10 --every 1h --windows 168 --expected-rows 400 --expected-mean kwh=0.4
      --epsilon 1
  fastdp plan --stat "*=count" --every 1d --windows 365 --keys 74 --person rider --rows 4 --per 1d --half-width 20
"""
OPTIONS = f"""{OF_COLUMNS.removesuffix("--nonfinite").rstrip()}
--epsilon E:float  Privacy loss of one unit.
--half-width X:float  The wanted half-width of the first statistic's interval, in place of --epsilon, which follows.
--every LENGTH  Length of the windows, such as 1h.  [default: one number for all rows]
--windows N:int = 1  Number of windows.
--keys N:int = 1  Number of keys.
--key-share X:float  The keys are chosen privately, with --delta and this share of the budget.
--others  The rows of all other keys are one more key, with --delta.
--levels/--no-levels as levels  Totals of all keys, of each key prefix and over all windows are measured too.
    [default: where they cost next to nothing]
--delta D:float = 0  As for fastdp aggregate.
--person COL  Column of persons, who are then the unit.
--rows K = 1  Rows of one unit, or auto with --person.
--per LENGTH  The unit is what a person adds in any such period, such as 1d.  [default: in all]
--per-window J:int  Rows of a person that count in one window.
--expected-rows X:float  Rows expected in each window and key: a guess, or a public number.
--expected-mean COL=X multiple  Value expected of a row.
--confidence :float = 0.95  Of the intervals."""


@click.command(epilog=EPILOG)
@with_options(OPTIONS, rows={"callback": rows_of}, levels=SWITCH)
def plan(**options: Any) -> None:
    """Errors and shares of a release of a table, before any data; costs no epsilon."""
    with running():
        listed = columns_of("expected-mean", options["expected_mean"])
        try:
            means = {column: float(texts[0]) for column, texts in listed.items()}
        except ValueError:
            raise click.UsageError("--expected-mean: expected a number, such as --expected-mean kwh=0.4.") from None
        share = {} if options["key_share"] is None else {"share": options["key_share"]}
        private = share or options["others"]
        found = fastdp.plan(
            columns_of("stat", options["stat"]),
            bounds=bounds_of({**options, "nonfinite": "raise"}),
            unit=unit_of(options),
            keys=fastdp.PrivateKeys(**share, others=options["others"]) if private else options["keys"],
            rows=options["expected_rows"],
            mean=means,
            **{name: options[name] for name in ("epsilon", "half_width", "every", "windows", "delta", "levels")},
            confidence=options["confidence"],
        )
        click.echo(str(found))
