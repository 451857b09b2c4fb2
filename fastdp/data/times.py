"""Columns of dates, datetimes, texts or numbers to instants in microseconds."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING

import numpy as np

from fastdp.data.calendar import Time, localised, python_format
from fastdp.data.column import arrow, compute
from fastdp.errors import DataError, argument
from fastdp.kinds import Flags, Integers
from fastdp.units import FIRST, LAST
from fastdp.validation import DAY

if TYPE_CHECKING:
    import pyarrow as pa

PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
#: Directives of numbers side by side.
_CLOSE = re.compile("%[A-Za-z]%[A-Za-y]")
#: Digits of a second's fraction beyond microseconds.
_NANOSECONDS = re.compile(r"(?<=\d[.,]\d{6})\d{1,3}(?!\d)")
#: RFC 3339 and ISO 8601: small letters, a comma, up to nine digits, times without marks between.
_ISO = (
    r"^\s*(?P<year>\d{4})-?(?P<month>\d\d)-?(?P<day>\d\d)(?:[Tt ](?P<hour>\d\d):?(?P<minute>\d\d)"
    r"(?::?(?P<second>\d\d)(?:[.,](?P<part>\d{1,9}))?)?\s?(?P<zone>[Zz]|[+-]\d\d(?::?\d\d)?)?)?\s*$"
)
#: Texts that may be numbers too.
_DIGITS = r"^\s*\d+\s*$"


def times_of(column: pa.Array, zone: tzinfo | None, time: Time | None = None) -> tuple[Integers, Flags | None]:
    """Instants of a column, int64[n], and flags of those present (None: all)."""
    column = _parsed(column, time)
    kind, present = column.type, None
    if column.null_count:
        present = column.is_valid().to_numpy(zero_copy_only=False)
    if arrow.types.is_timestamp(kind):
        whole = column.cast(arrow.int64())
        numbers: Integers = (whole.fill_null(0) if present is not None else whole).to_numpy()
        each, aware = PER_SECOND[kind.unit], kind.tz is not None
        if aware and zone is None:
            raise DataError(f"time has a zone: expected {argument(zone=...)}, the zone of the windows")
        times = numbers // 1_000 if kind.unit == "ns" else numbers
        factor = max(1, 10**6 // each)
    elif arrow.types.is_date(kind):
        times = column.cast(arrow.date32()).cast(arrow.int32()).fill_null(0).to_numpy().astype(np.int64)
        factor, aware = DAY, False
    elif arrow.types.is_null(kind):
        times, factor, aware = np.zeros(len(column), np.int64), 1, True
    else:
        raise DataError("time holds no dates or datetimes in every part of the table: expected one type")
    if times.size and not FIRST // factor <= times.min() <= times.max() <= LAST // factor:
        raise DataError("time: an entry lies outside the years 1 to 9999; expected times that a calendar has")
    times = times * factor if factor > 1 else times
    return (times if zone is None or aware else localised(times, zone)), present


def _parsed(column: pa.Array, time: Time | None) -> pa.Array:
    types, kind = arrow.types, column.type
    if types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    unit, form = (None, None) if time is None else (time.unit, time.format)
    texts = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
    try:
        if unit is not None and (types.is_floating(kind) or types.is_decimal(kind)):
            numbers = column.cast(arrow.float64()).to_numpy(zero_copy_only=False)
            micros = np.floor(numbers * (10**6 / PER_SECOND[unit]))
            known = np.isfinite(micros) & (np.abs(micros) < 2.0**62)
            return arrow.array(
                np.where(known, micros, 0.0).astype(np.int64), arrow.timestamp("us", "UTC"), mask=~known
            )
        if unit is not None and types.is_integer(kind):
            return column.cast(arrow.int64()).cast(arrow.timestamp(unit, "UTC"))
        if form is not None and types.is_integer(kind):
            column = column.cast(arrow.string())
        if form is not None and not types.is_temporal(kind):
            return _formatted(column.cast(arrow.string()), form)
        if texts:
            return _iso_texts(column.cast(arrow.string()))
    except (arrow.ArrowInvalid, ValueError):
        asked = "ISO texts such as 2024-03-31T01:00" if form is None else f"texts of the format {form!r}"
        raise DataError(
            f"time: an entry is no time; expected {asked} in every row, or {argument('Time', format=...)}"
        ) from None
    return column


def _formatted(column: pa.StringArray, form: str) -> pa.TimestampArray:
    # Arrow takes 31 April for 1 May: its times are right if it writes the same texts.
    try:
        found = compute.strptime(column, format=form, unit="s")
        if compute.all(compute.equal(compute.strftime(found, form), column)).as_py() is not False:
            return found
    except arrow.ArrowInvalid:  # other directives, or an entry that is no time
        pass
    coded, form = column.dictionary_encode(), python_format(form)
    # Between numbers that nothing separates no digit may be missing.
    whole = form.partition("%z")[0] if _CLOSE.search(form) else ""

    def read(text: str) -> datetime:
        text = _NANOSECONDS.sub("", text.strip()) if "%f" in form else text.strip()
        moment = datetime.strptime(text, form)
        if not text.startswith(moment.strftime(whole)):
            raise ValueError
        return moment

    times = [None if text is None else read(text) for text in coded.dictionary.to_pylist()]
    return arrow.array(times, arrow.timestamp("us", "UTC" if "%z" in form else None)).take(coded.indices)


def _iso_texts(column: pa.StringArray) -> pa.TimestampArray:
    for zone in (None, "UTC"):
        with suppress(arrow.ArrowInvalid):
            return column.cast(arrow.timestamp("us", zone))
    parts = compute.extract_regex(column, _ISO)
    plain = compute.match_substring_regex(column, _DIGITS)
    if parts.null_count > column.null_count or compute.any(plain).as_py():
        raise ValueError
    year, month, day, hour, minute, second, part, offset = parts.flatten()
    marked = compute.not_equal(offset, "")
    aware = bool(compute.any(marked).as_py())
    if aware and not compute.all(marked).as_py():
        raise ValueError
    date = compute.binary_join_element_wise(year, month, day, "-")
    clock = [compute.if_else(compute.equal(each, ""), "00", each) for each in (hour, minute, second)]
    # Rounded down to microseconds, as all times are.
    part = compute.utf8_rpad(compute.utf8_slice_codeunits(part, 0, 6), 6, "0")
    join, offset = compute.binary_join_element_wise, compute.ascii_upper(offset)
    texts = join(join(date, join(*clock, ":"), "T"), join(part, offset, ""), ".")
    return texts.cast(arrow.timestamp("us", "UTC" if aware else None))
