"""A value that occurs nowhere else, the wrong inputs that carry it, and a search of all that comes out of a call."""

from __future__ import annotations

import functools
import io
import logging
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

CANARY = 7319462.25
WHOLE = 7319462
#: Whole, and too large for an increment.
HUGE = WHOLE * 10**9
TEXT = f"{CANARY}x"
#: A text whose length is a secret too; NumPy's dtypes tell it, in characters or in bytes.
LENGTH = 8191
LONG = TEXT + "x" * (LENGTH - len(TEXT))
#: Powers of two are steps of the grids that publishers choose.
GRIDS = range(-64, 65)


def spellings() -> re.Pattern[str]:
    """The canary as Python, NumPy, C and a grid write it; its first bytes; the long text's length."""
    shown = {f"{CANARY:.3g}", f"{CANARY:e}"[:5], f"{WHOLE:,}", f"{WHOLE:_}", CANARY.hex(), hex(WHOLE)}
    steps = {str(int(CANARY * 2.0**k)) for k in GRIDS if CANARY * 2.0**k >= 1e6}
    steps |= {str(int(abs(CANARY) * 10**k)) for k in range(9)}
    words = {"b'73", 'b"73', *shown, *steps}
    # The digits of a spelling may go on, or be in the midst of others; a length stands alone.
    found = "|".join(map(re.escape, sorted(words, key=len, reverse=True)))
    return re.compile(rf"{found}|(?<!\d)(?:{LENGTH}|{4 * LENGTH})(?!\d)")


SPELLINGS = spellings()


class Records(logging.Handler):
    """Log messages, arguments and tracebacks included."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said += [record.getMessage(), repr(record.args), record.exc_text or "", repr(record.exc_info)]


@contextmanager
def logged() -> Iterator[list[str]]:
    """All records of the root logger at DEBUG; the compiler's, which show code, from INFO."""
    handler, root, compiler = Records(), logging.getLogger(), logging.getLogger("numba")
    before = root.level, compiler.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    compiler.setLevel(logging.INFO)
    try:
        yield handler.said
    finally:
        root.removeHandler(handler)
        root.setLevel(before[0])
        compiler.setLevel(before[1])


def said_by(error: BaseException) -> list[str]:
    """Everything an error shows but code: text, arguments, notes, attributes; and those of the errors behind it."""
    lines: list[str] = []
    link: BaseException | None = error
    while link is not None:
        lines += [str(link), repr(link), repr(link.args), repr(getattr(link, "__notes__", ())), repr(vars(link))]
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return lines


def witness(call: Callable[[], Any]) -> tuple[BaseException | None, list[str]]:
    """The error of a call, and all that came out of it: messages, warnings, logs, both outputs."""
    out, err = io.StringIO(), io.StringIO()
    failed: BaseException | None = None
    with (
        warnings.catch_warnings(record=True) as warned,
        logged() as records,
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        warnings.simplefilter("always")
        try:
            call()
        except (Exception, SystemExit) as error:
            failed = error
    lines = [] if failed is None else said_by(failed)
    lines += [f"{w.category.__name__}: {w.message} {getattr(w.message, 'args', '')!r}" for w in warned]
    return failed, [*lines, *records, out.getvalue(), err.getvalue()]


def leaks(lines: list[str]) -> list[str]:
    """The lines in which the canary is; addresses of objects are no digits of it."""
    return [line for line in lines if SPELLINGS.search(re.sub(r" at 0x[0-9a-f]+", "", line))]


# Wrong inputs, each with the canary in it.


class Quoting:
    """A foreign object whose own error quotes the value."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        raise RuntimeError(f"cannot convert {CANARY}")

    def __repr__(self) -> str:
        return f"Quoting({CANARY})"


class QuotingArrow(Quoting):
    """The same through Arrow."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        raise RuntimeError(f"cannot export {CANARY}")


def objects(*entries: Any) -> np.ndarray:
    """An array of these objects, which NumPy does not ask what they are."""
    array = np.empty(len(entries), object)
    for place, entry in enumerate(entries):
        array[place] = entry
    return array


def not_finite(bad: float) -> list[float]:
    """The canary beside a value that is none."""
    return [1.0, CANARY, bad, CANARY]


def columns() -> dict[str, Any]:
    """Columns that no publisher takes; only a generator is used up."""
    return {**_columns(), "generator": iter([CANARY, TEXT])}


@functools.cache
def _columns() -> dict[str, Any]:
    texts, decimals = ["1", TEXT], [Decimal(str(CANARY)), Decimal("nan")]
    frame = {"a": [1.0, CANARY], "b": [2.0, CANARY]}
    return {
        "NaN beside it": not_finite(np.nan),
        "infinity beside it": not_finite(np.inf),
        "NaN beside it, polars": pl.Series(not_finite(np.nan)),
        "missing beside it": [1.0, CANARY, None],
        "missing beside it, pandas": pd.Series([WHOLE, None], dtype="Int64"),
        "missing beside it, Arrow": pa.array([1.0, CANARY, None]),
        "masked": np.ma.masked_greater(np.array([1.0, CANARY, 8e6]), 7.9e6),
        "float32": np.array([CANARY, np.nan], np.float32),
        "longdouble": np.array([CANARY, np.inf], np.longdouble),
        "beyond float64": [WHOLE, WHOLE * 10**400],
        "texts": texts,
        "a number and a text": [1.0, TEXT],
        "text array": np.array(texts),
        "long text": np.array(["1", LONG]),
        "long text in a list": [1.0, LONG],
        "long bytes": np.array([LONG.encode()]),
        "masked texts": np.ma.array([LONG]),
        "records": np.array([(CANARY,)], [("a", "f8")]),
        "void": np.array([LONG.encode()]).view(f"V{LENGTH}"),
        "objects": objects(CANARY, Quoting()),
        "objects with a text": objects(CANARY, TEXT),
        "decimals": decimals,
        "fractions": [Fraction(CANARY), "x"],
        "complex": [complex(CANARY, 1.0)],
        "moments": np.array([WHOLE], "M8[s]"),
        "spans": np.array([WHOLE], "m8[s]"),
        "nested": [[CANARY]],
        "nested deeper": [[[CANARY, 1.0]]],
        "ragged": [[CANARY], [CANARY, 1.0]],
        "ragged with a text": [1.0, [TEXT]],
        "matrix": np.full((2, 2), CANARY),
        "scalar array": np.array(CANARY),
        "text": TEXT,
        "long text alone": LONG,
        "bytes": TEXT.encode(),
        "bytearray": bytearray(TEXT.encode()),
        "mapping": {TEXT: CANARY},
        "set": {CANARY},
        "foreign": Quoting(),
        "foreign Arrow": QuotingArrow(),
        "foreign in a list": [Quoting()],
        "pandas texts": pd.Series(texts),
        "pandas long text": pd.Series([LONG], dtype=object),
        "pandas decimals": pd.Series(decimals),
        "pandas categories": pd.Series([TEXT, LONG], dtype="category"),
        "pandas intervals": pd.Series(pd.interval_range(CANARY, periods=2)),
        "pandas Arrow texts": pd.Series([TEXT], dtype="string[pyarrow]"),
        "pandas moments": pd.Series(pd.to_datetime([WHOLE], unit="s")),
        "pandas frame": pd.DataFrame(frame),
        "pandas index": pd.Index([TEXT]),
        "polars texts": pl.Series(texts),
        "polars enum": pl.Series([TEXT], dtype=pl.Enum([TEXT, LONG])),
        "polars lists": pl.Series([[CANARY]]),
        "polars structs": pl.Series([{"a": CANARY, "b": TEXT}]),
        "polars objects": pl.Series([Quoting()], dtype=pl.Object),
        "polars lazy": pl.LazyFrame(frame),
        "Arrow texts": pa.array(texts),
        "Arrow dictionary": pa.array([TEXT, LONG]).dictionary_encode(),
        "Arrow fixed bytes": pa.array([LONG.encode()], pa.binary(LENGTH)),
        "Arrow fixed lists": pa.array([[CANARY] * LENGTH], pa.list_(pa.float64(), LENGTH)),
        "Arrow structs": pa.array([{"a": CANARY, "b": TEXT}]),
        "Arrow table": pa.table(frame),
    }


@functools.cache
def points() -> dict[str, Any]:
    """Points that no publisher of a unit square takes."""
    return {
        "outside": [[0.5, 0.5], [0.25, CANARY]],
        "outside, negative": [[-CANARY, 0.5]],
        "NaN beside it": [[0.5, 0.5], [np.nan, CANARY]],
        "infinity beside it": [[np.inf, CANARY]],
        "missing beside it": [[None, CANARY]],
        "beyond float64": [[WHOLE * 10**400, 0.5]],
        "texts": [["0.5", TEXT]],
        "long text": np.array([["0.5", LONG]]),
        "bytes": np.array([[b"0.5", LONG.encode()]]),
        "objects": objects(0.5, TEXT)[np.newaxis],
        "foreign objects": objects(Quoting(), CANARY)[np.newaxis],
        "decimals outside": [[Decimal(str(CANARY)), Decimal("0.5")]],
        "complex": [[complex(CANARY, 1.0), 0.5]],
        "moments": np.array([[WHOLE, WHOLE]], "M8[s]"),
        "three coordinates": [[CANARY, CANARY, CANARY]],
        "one coordinate": [[CANARY]],
        "one row": [CANARY, 0.5],
        "ragged": [[CANARY, 0.5], [CANARY]],
        "too deep": [[[CANARY, 0.5]]],
        "number": CANARY,
        "records": np.array([(CANARY, 0.5)], [("x", "f8"), ("y", "f8")]),
        "masked": np.ma.masked_greater(np.array([[CANARY, 8e6]]), 7.9e6),
        "frame outside": pd.DataFrame({"x": [0.5, CANARY], "y": [0.5, 0.5]}),
        "frame of texts": pd.DataFrame({"x": ["0.5", TEXT], "y": ["1", "2"]}),
        "polars frame outside": pl.DataFrame({"x": [CANARY], "y": [0.5]}),
        "foreign": Quoting(),
        "mapping": {TEXT: CANARY},
    }


@functools.cache
def increments() -> dict[str, Any]:
    """Increments of two sums that no counter takes, whole numbers that no report is, and choices of a selector."""
    return {
        "no whole number": [0, CANARY],
        "negative": [1, -WHOLE],
        "too large": [HUGE * 10**3, 1],
        "too small": [-HUGE * 10**3, 1],
        "beyond int64": [WHOLE * 10**300, 1],
        "NaN beside it": [CANARY, np.nan],
        "too many": [WHOLE, 1, 1],
        "twice": [WHOLE, WHOLE],
        "one number": WHOLE,
        "one wrong number": CANARY,
        **{f"a choice of kind {k}": [WHOLE, k] for k in range(4)},
    }


@functools.cache
def singles() -> dict[str, Any]:
    """Single values, keys and messages of a client."""
    return {
        "number": CANARY,
        "beyond float64": WHOLE * 10**400,
        "decimal": Decimal(str(CANARY)),
        "complex": CANARY + 1j,
        "raw text": TEXT.encode() * 8,
        "long": LONG.encode(),
        "array": np.array([CANARY]),
    }


def tables() -> dict[str, Any]:
    """Frames whose columns are no times, values, keys or persons; only a reader is used up."""
    return {**_tables(), "keys, reader": pa.Table.from_pandas(_tables()["keys"]).to_reader()}


@functools.cache
def _tables() -> dict[str, Any]:
    at = pd.to_datetime(["2024-01-01", "2024-01-02"])
    good = pd.DataFrame({"at": at, "kwh": [1.0, CANARY], "key": ["a", TEXT], "who": [1, WHOLE]})
    changed = {
        "values": {"kwh": [TEXT, TEXT]},
        "objects": {"kwh": objects(CANARY, TEXT)},
        "not finite": {"kwh": [np.nan, CANARY]},
        "decimals": {"kwh": [Decimal(str(CANARY)), None]},
        "times": {"at": [TEXT, TEXT]},
        "numbers as times": {"at": [CANARY, 1.0]},
        "mixed times": {"at": objects(at[0], TEXT)},
        "a missing time": {"at": [None, at[0]]},
        "keys": {"key": [CANARY, 1.0]},
        "a missing person": {"who": [TEXT, None]},
    }
    frames = {name: good.assign(**columns) for name, columns in changed.items()}
    return {
        **frames,
        "values, polars": pl.from_pandas(frames["values"]),
        "times, lazy": pl.from_pandas(frames["times"]).lazy(),
        "a missing person, Arrow": pa.Table.from_pandas(frames["a missing person"]),
        "far times": pa.table({"at": pa.array([WHOLE * 10**9] * 2, pa.timestamp("s")), "kwh": [1.0, 2.0]}),
    }


def mistaken() -> dict[str, Any]:
    """Private data that a user may pass for a name or a number: texts and numbers of persons."""
    texts, numbers = [TEXT, f"{TEXT} too", TEXT], [CANARY, 1.0, CANARY]
    return {
        "list of texts": texts,
        "list of two": texts[:2],
        "list of one number": numbers[:1],
        "list of numbers": numbers,
        "tuple of texts": tuple(texts),
        "pandas texts": pd.Series(texts),
        "pandas numbers": pd.Series(numbers),
        "polars texts": pl.Series(texts),
        "polars numbers": pl.Series(numbers),
        "array of texts": np.array(texts),
        "array of numbers": np.array(numbers),
        "polars lazy": pl.LazyFrame({"kwh": numbers, "who": texts}),
        "Arrow table": pa.table({"kwh": numbers, "who": texts}),
        "data frame": pd.DataFrame({"at": numbers, "who": texts}),
        "mapping": {TEXT: CANARY, "a": texts},
        "set": {*texts},
        "foreign": Quoting(),
    }


Inputs = Callable[[], dict[str, Any]]


def _named(names: str, *inputs: Any) -> dict[str, tuple[Any, ...]]:
    return dict.fromkeys(names.split(), inputs)


#: What is tried in the place of data, by the names of arguments.
DATA: dict[str, tuple[Inputs, ...]] = {
    **_named("chunk truth answers lengths streams keys persons times ids errors released", columns),
    **_named("points added removed lower rows", points),
    **_named("values reports counts batch batches", columns, increments),
    **_named("value data announcement text key secret", singles),
    "frame": (tables, columns),
}
#: Shown by intention: texts that are paths or choices, the length of a key, the number of entries of a column.
SHOWN = {**_named("frame keys persons", "text", "long text alone"), **_named("key secret", "long")}
#: Names of columns and of streams, and numbers, are public: arguments by the beginnings of calls.
PUBLIC = (
    *((call, ("value", "ids")) for call in ("means", "totals", "release", "plan", "Plan")),
    *(("Person", ("rows",)), ("Guarantee", ("rows", "times")), ("Ledger", ("times",)), ("Release", ("streams",))),
    *(("thresholds", ("lengths",)), ("datasets", ("batch",))),
)


def inputs(call: str, argument: str) -> Iterator[tuple[str, Any]]:
    """Wrong inputs of an argument that takes data; none of another one.  Pictures have them by name."""
    if not any(call.startswith(begin) and argument in names for begin, names in PUBLIC):
        named = call.startswith("plots.") and argument == "rows"
        for kind, bad in ((kind, bad) for several in DATA.get(argument, ()) for kind, bad in several().items()):
            if kind not in SHOWN.get(argument, ()):
                yield kind, {"a": bad} if named else bad
