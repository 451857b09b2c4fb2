"""The options of ``fastdp totals``, ``counts`` and ``means``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from fastdp.cli.options import force_option, key_file_option, ledger_options, seed_option

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

_IN_OUT = (
    click.argument("source", metavar="IN", type=click.Path(exists=True, allow_dash=True)),
    click.option("-o", "--output", metavar="OUT", required=True, help="A file, or - for CSV on standard output."),
    click.option(
        "--plot",
        "picture",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Draw estimates, intervals and the revised line; the suffix chooses the format, such as .png.",
    ),
)
_WINDOWS = (
    click.option("--time", metavar="COL", required=True, help="Column of times."),
    click.option(
        "--every",
        metavar="LENGTH",
        required=True,
        help="Length of a window: 90s, 15min, 1h; or 1d, 1w, 1mo, 1y from local midnight to local midnight.",
    ),
    click.option("--start", metavar="TIME", help="Where the first window begins: public.  [default: the table's]"),
    click.option("--stop", metavar="TIME", help="Where the last window ends: public.  [default: the table's]"),
    click.option(
        "--origin", metavar="TIME", help="Where some window begins.  [default: 1970-01-01, midnight in the zone]"
    ),
    click.option(
        "--time-zone",
        metavar="ZONE",
        help="Zone of the windows, such as Europe/Paris; times without a zone are clock times in it.  "
        "[default: the time column's]",
    ),
)
_KEYS = (
    click.option("--by", metavar="COL", multiple=True, help="Key column, repeated for several: windows of each key."),
    click.option(
        "--key",
        "listed",
        metavar="KEY",
        multiple=True,
        help="A key that is released, repeated; of several --by, as a line of CSV: A,7. Other rows are dropped.",
    ),
    click.option(
        "--keys-file",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        metavar="FILE",
        help="The keys that are released: a CSV or Parquet file with the columns of --by.",
    ),
    click.option(
        "--public-keys", is_flag=True, help="Release all keys of the table: it is no secret which keys it has."
    ),
    click.option(
        "--delta",
        type=float,
        metavar="D",
        default=0.0,
        show_default=True,
        help="Above 0 the keys are private: those whose noisy number of rows passes a threshold are released.",
    ),
)
_VALUES = (
    click.option("--value", metavar="COL", required=True, help="Column of numbers."),
    click.option(
        "--bound",
        metavar="HIGH | LOW,HIGH",
        help="Public bound of a value, from 0, or both ends. Values beyond it count as the bound. Take it from what "
        "is known of the quantity, never from the data.",
    ),
    click.option(
        "--clip",
        metavar="HIGH | LOW,HIGH",
        help="What values are clipped to, if that is known publicly.  [default: chosen from all rows with a share "
        "of epsilon]",
    ),
    click.option(
        "--resolution", type=float, metavar="X", help="Step to which values are rounded.  [default: bound / 2^32]"
    ),
    click.option(
        "--nonfinite",
        type=click.Choice(["raise", "zero"]),
        default="raise",
        show_default=True,
        help="Missing values, NaN and infinity: stop with an error, or count as 0.",
    ),
)
_PRIVACY = (
    click.option("--epsilon", type=float, required=True, help="Privacy loss of one unit (a row) over the output."),
    click.option(
        "--contributions",
        type=int,
        metavar="K",
        default=1,
        show_default=True,
        help="Rows of one unit. Without --who you vouch for it; with --who further rows are dropped.",
    ),
    click.option(
        "--period", metavar="LENGTH", help="The unit is what a person adds in any such period.  [default: in all]"
    ),
    click.option("--per-window", type=int, metavar="J", help="A person's rows that count in a window (with --who)."),
    click.option("--who", metavar="COL", help="Column of persons, who are then the unit."),
)
_ENGINE = (
    click.option(
        "--engine",
        type=click.Choice(["spark", "dask"]),
        help="Add the rows on an engine, for tables beyond one machine: with --start, --stop, --clip, and with --by "
        "listed keys.  The output is the same, byte for byte.",
    ),
    click.option(
        "--master",
        metavar="ADDRESS",
        envvar="FASTDP_SPARK_MASTER",
        show_envvar=True,
        help="With --engine spark: of its cluster, such as spark://host:7077.  [default: local, or Spark's own "
        "configuration]",
    ),
    click.option(
        "--scheduler",
        metavar="ADDRESS",
        envvar="FASTDP_DASK_SCHEDULER",
        show_envvar=True,
        help="With --engine dask: of its cluster, such as tcp://host:8786.  [default: threads of this process]",
    ),
)
_REST = (
    click.option(
        "--missing",
        type=click.Choice(["raise", "drop"]),
        default="raise",
        show_default=True,
        help="Rows without a time or person: stop with an error, or drop them.",
    ),
    click.option("--confidence", type=float, default=0.95, show_default=True, help="Of the intervals."),
    seed_option,
    key_file_option,
    click.option("--quiet", is_flag=True, help="No summary."),
    force_option,
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
        function = ledger_options(function, parts=False)
        for option in reversed(
            (*_IN_OUT, *_WINDOWS, *_KEYS, *(_VALUES if values else ()), *_PRIVACY, *_ENGINE, *_REST)
        ):
            function = option(function)
        return click.command(epilog=EPILOG)(function)

    return decorate
