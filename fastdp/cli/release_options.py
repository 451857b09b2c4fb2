"""The options of ``fastdp release``."""

from __future__ import annotations

from collections.abc import Callable

import click

from fastdp.cli.options import (
    declared,
    force_option,
    key_file_option,
    ledger_options,
    quiet_option,
    seed_option,
    state_option,
    with_options,
)

METHODS = ("adaptive", "tops", "pak", "topl")
#: Options that not every method has, and the methods that have them.
USERS = {
    "threshold": ("adaptive", "pak", "topl"),
    "max_range": ("adaptive", "tops", "topl"),
    "expected_length": ("adaptive", "tops"),
    "every": ("adaptive", "tops"),
    "fan_out": ("tops",),
    "prune": ("tops",),
    "length": ("pak",),
    "delta": ("pak",),
    "resolution": ("adaptive", "tops", "pak"),
    "nonfinite": ("adaptive", "tops"),
    "sensitivity": ("adaptive",),
    "contributions": ("adaptive", "tops"),
    "season": ("adaptive",),
}
#: Options on which the output depends, besides the values and the key.
SETTINGS = ("method", "epsilon", "bound", "holdout", *USERS)

EPILOG = """
\b
Examples
  fastdp release meter.npy -o private.npy --epsilon 0.1 --bound 10000
  fastdp release trips.parquet --column fare -o private.parquet --epsilon 0.1 --bound 500
  fastdp release people_a_minute.csv -o private.csv --epsilon 0.5 --sensitivity 1
  zcat log.gz | fastdp release - -o - --epsilon 0.05 --bound 2000 > private.csv
  fastdp release log.csv -o - --state log.state --epsilon 0.05 --bound 2000 > private.csv
  tail -f log.txt | fastdp release - -o - --follow --threshold 50 --epsilon 0.05 --bound 2000
  fastdp release meter.npy -o private.parquet --values both --index --epsilon 0.1 --bound 10000
  fastdp release meter.npy -o private.npy --method pak --length 1000000 --epsilon 1 --bound 10000
  fastdp release meter.npy -o private.npy --method topl --epsilon 1 --bound 10000
  fastdp release meter.npy -o private.npy --epsilon 0.1 --bound 10000 --ledger budget --stream meter --limit 1
"""


def _prune(ctx: click.Context, param: click.Parameter, value: str) -> int | str:
    """A whole number, or the word."""
    if value == "optimal":
        return value
    if value.isascii() and value.isdigit():
        return int(value)
    raise click.BadParameter(f"{value!r} is neither a whole number nor 'optimal'.", ctx, param)


_OPTIONS = (
    click.argument("source", metavar="IN"),
    *declared(
        """
-o/--output OUT required  Output file, or - for CSV on standard output.
--epsilon :float required  Privacy loss for one value of the stream.
--bound :float  Public upper bound of a value; values outside [0, bound] are clipped. Take it from what is known of
    the quantity, never from the data.
--sensitivity S:float  In place of --bound: each value counts events, and one event moves one value by at most S (1
    for people a minute). Nothing is clipped or held out, and every value is published (adaptive).
--contributions W:int = 1  Epsilon is for any W consecutive values together (adaptive, tops), or with --sensitivity
    for any W events.
--column C  Column: a name or a zero-based number. Needed where there are several.
--method (adaptive|tops|pak|topl) = adaptive  The system: adaptive, whose blocks follow the stream; tops, the paper's;
    pak, the differences of private running sums of a stream of known length. All three trust this computer with the
    values; topl simulates the local model, where each value is hidden by a report of its own, with far more noise.
--holdout M:int  First values, which choose the threshold; published values begin after them. adaptive releases up to
    an eighth of them as noisy sums, pak the noisy sum of all.  [default: none with --threshold; none for adaptive
    where IN says how many values it holds (.npy, .npz, .parquet): the threshold then takes up to a tenth of epsilon;
    fewer with --expected-length or --every; else 65,536]
--threshold X:float  Publicly known threshold, in units of a value: values above it are clipped to it, and none is
    withheld (not tops).  It must not come from the data.
--max-range R:int  Longest range of values whose sum will be asked for (not pak).  [default: 2^20, or fewer with
    --expected-length or --every; the input's length where adaptive withholds none because IN says it]
--expected-length N:int  About how many values will come, a public number: chooses the defaults of --holdout and
    --max-range (adaptive, tops).
--every T  Time between two values, such as 30min, a public number: without --expected-length the stream is planned
    for a year (adaptive, tops).
--season N:float  After how many values the stream repeats, a public number (1440 for counts a minute with a day):
    values follow that pattern where released sums show it (adaptive).
--fan-out B:int = 16  Tree fan-out (tops).
--prune [S|optimal] = optimal  Lowest levels to prune: noise is added once per B^S values (tops).
--length N:int  Values of the whole stream, the hold-out included: a public number (pak, which needs it).
--delta D:float  The threshold's share of the guarantee (pak).  [default: 1 / length^2]
--resolution X:float  Step to which values are rounded (not topl).  [default: bound / 2^32]
--nonfinite (raise|zero) = raise  Missing values, NaN and infinity: stop with an error, or count as 0 (adaptive,
    tops).
--values (published|revised|both) = published  What is written: values as they are published; revised ones, which use
    everything that was released and are more accurate; or both, in two columns. Revised values need the end of the
    input: it is kept in memory.
--index  A first column: the place of each value in the input, from 0.
--follow  IN - is a live pipe: each line is answered at once. Needs -o - and no --state (which holds standard output
    back).
""",
        prune={"callback": _prune},
    ),
    *(seed_option, key_file_option, state_option),
    *declared("""
--chunk-size N:from1 = 65536  Values in memory at a time; the output does not depend on it.
"""),
    *(quiet_option, force_option, *ledger_options),
)


def release_command(function: Callable[..., None]) -> click.Command:
    """The command with all of them."""
    return click.command(epilog=EPILOG)(with_options(_OPTIONS)(function))
