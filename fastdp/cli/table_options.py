"""The options of ``fastdp totals``, ``counts`` and ``means``."""

from __future__ import annotations

from collections.abc import Callable

import click

from fastdp.cli.options import (
    declared,
    force_option,
    key_file_option,
    seed_option,
    table_ledger_options,
    with_options,
)

EPILOG = """
\b
Examples
  fastdp totals readings.parquet --time timestamp --every 1h --value kwh --epsilon 1 --bound 10 -o private.parquet
  fastdp totals readings.csv --time timestamp --every 1d --by household --keys-file households.csv --value kwh
      --epsilon 1 --bound 10 -o private.csv --plot private.png
  fastdp counts trips.parquet --time start --every 1h --by station --key Embarcadero --key Caltrain
      --epsilon 0.5 --time-zone America/Los_Angeles -o private.parquet
  fastdp means trips.parquet --time start --every 1d --value minutes --epsilon 1 --clip 60 -o private.parquet
  fastdp counts orders.csv --time at --every 1d --by country --delta 1e-6 --who customer --contributions 20
      --period 1d --epsilon 1 -o private.csv --ledger budget --stream orders --limit 2
  fastdp totals readings/ --time at --every 1h --value kwh --start 2026-01-01 --stop 2027-01-01 --clip 10 --epsilon 1
      --engine spark --master spark://host:7077 -o private.parquet
"""

_BEFORE = (
    click.argument("source", metavar="IN", type=click.Path(exists=True, allow_dash=True)),
    *declared("""
-o/--output OUT required  A file, or - for CSV on standard output.
--plot FILE:path as picture  Draw estimates, intervals and the revised line; the suffix chooses the format, such as
    .png.
--time COL required  Column of times.
--every LENGTH required  Length of a window: 90s, 15min, 1h; or 1d, 1w, 1mo, 1y from local midnight to local midnight.
--start TIME  Where the first window begins: public.  [default: the table's]
--stop TIME  Where the last window ends: public.  [default: the table's]
--origin TIME  Where some window begins.  [default: 1970-01-01, midnight in the zone]
--time-zone ZONE  Zone of the windows, such as Europe/Paris; times without a zone are clock times in it.  [default:
    the time column's]
--by COL multiple  Key column, repeated for several: windows of each key.
--key KEY as listed multiple  A key that is released, repeated; of several --by, as a line of CSV: A,7. Other rows are
    dropped.
--keys-file FILE:file  The keys that are released: a CSV or Parquet file with the columns of --by.
--public-keys  Release all keys of the table: it is no secret which keys it has.
--delta D:float = 0.0  Above 0 the keys are private: those whose noisy number of rows passes a threshold are released.
"""),
)
_VALUES = declared(
    """
--value COL required  Column of numbers.
--bound HIGH  Public bound of a value, from 0, or both ends. Values beyond it count as the bound. Take it from what
    is known of the quantity, never from the data.
--clip HIGH  What values are clipped to, if that is known publicly.  [default: chosen from all rows with a share of
    epsilon]
--resolution X:float  Step to which values are rounded.  [default: bound / 2^32]
--nonfinite (raise|zero) = raise  Missing values, NaN and infinity: stop with an error, or count as 0.
""",
    bound={"metavar": "HIGH | LOW,HIGH"},
    clip={"metavar": "HIGH | LOW,HIGH"},
)
_AFTER = (
    *declared(
        """
--epsilon :float required  Privacy loss of one unit (a row) over the output.
--contributions K:int = 1  Rows of one unit. Without --who you vouch for it; with --who further rows are dropped.
--period LENGTH  The unit is what a person adds in any such period.  [default: in all]
--per-window J:int  A person's rows that count in a window (with --who).
--who COL  Column of persons, who are then the unit.
--engine (spark|dask)  Add the rows on an engine, for tables beyond one machine: with --start, --stop, --clip, and
    with --by listed keys.  The output is the same, byte for byte.
--master ADDRESS  With --engine spark: of its cluster, such as spark://host:7077.  [default: local, or Spark's own
    configuration]
--scheduler ADDRESS  With --engine dask: of its cluster, such as tcp://host:8786.  [default: threads of this process]
--missing (raise|drop) = raise  Rows without a time or person: stop with an error, or drop them.
--confidence :float = 0.95  Of the intervals.
""",
        master={"envvar": "FASTDP_SPARK_MASTER", "show_envvar": True},
        scheduler={"envvar": "FASTDP_DASK_SCHEDULER", "show_envvar": True},
    ),
    *(seed_option, key_file_option),
    *declared("""
--quiet  No summary.
"""),
    *(force_option, *table_ledger_options),
)

INTRODUCTION = """
    IN is a .parquet, .csv, .csv.gz or .arrow file with named columns, in any order of rows, or - for CSV on standard
    input. OUT is a .parquet, .csv or .npz file: a row for each window and key, with columns window (its start), the
    keys, estimate, std_error, low, high (from the window's own noisy sum) and revised, revised_low, revised_high
    (from all windows of the key, by a model). Guarantee, clip and noise are in the metadata of Parquet and npz, and
    in OUT.json beside CSV. A window without rows is released as any other.
"""


def table_command(values: bool) -> Callable[[Callable[..., None]], click.Command]:
    """The options of one of the three commands."""

    def decorate(function: Callable[..., None]) -> click.Command:
        function.__doc__ = f"{function.__doc__}\n{INTRODUCTION}"
        options = (*_BEFORE, *(_VALUES if values else ()), *_AFTER)
        return click.command(epilog=EPILOG)(with_options(options)(function))

    return decorate
