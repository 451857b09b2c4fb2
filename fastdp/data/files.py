"""Files and pipes of tables: CSV, Parquet and Arrow, as batches that know their number of rows."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal

from fastdp import validation
from fastdp.record import Checked, Choice, Flag, Kind, Text, parameter, record
from fastdp.validation import refusal


@record
class Csv:
    """A CSV file and how it is written, for every function that takes a path.

    Parameters
    ----------
    path : str or Path
        A file that ends in .csv, .tsv or .txt, also packed (.gz, .bz2); "-" is standard input.
    separator : str, optional
        One character; by default that of comma, semicolon and tab which the first row has most.
    decimal : "." or ","
        The decimal sign of numbers.
    encoding : str, optional
        Python's name, such as "latin-1"; by default UTF-8, or UTF-16 with a byte order mark.
    comment : str, optional
        Lines that begin with this text are left out.
    header : bool, optional
        Whether the first row names the columns; otherwise "0", "1" and so on are their names.  By default it does,
        unless a single column of numbers is asked for and the first row has a number.
    types : dict of str to str, optional
        Types of columns, named as Arrow does: {"meter": "string"}; others follow from the first rows.

    Examples
    --------
    >>> import fastdp
    >>> fastdp.Csv("visits.csv", separator=";", decimal=",").decimal
    ','
    """

    path: str | os.PathLike[str] = parameter(Checked(validation.path))
    separator: str | None = parameter(Text(1, optional=True), default=None)
    decimal: Literal[".", ","] = parameter(Choice((".", ",")), default=".")
    encoding: str | None = parameter(Text(optional=True), default=None)
    comment: str | None = parameter(Text(optional=True), default=None)
    header: bool | None = parameter(Flag(optional=True), default=None)
    types: Mapping[str, str] | None = parameter(Kind(optional=True), default=None)

    def _check(self) -> None:
        if self.separator is not None and (self.separator in '"\r\n' or not self.separator.isascii()):
            raise refusal("separator", self.separator, "one character such as ';', no quote or end of a line")
        if self.encoding is not None:
            try:
                "".encode(self.encoding)
            except LookupError:
                raise refusal(
                    "encoding", self.encoding, "a name of Python's, such as 'latin-1' or 'cp1252'"
                ) from None
