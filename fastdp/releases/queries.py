"""Ranges as users give them: integers in order, within a stream."""

from __future__ import annotations

import numpy as np

from fastdp.data.column import as_array, kind_of
from fastdp.errors import ParameterError
from fastdp.kinds import Integers


def check_ranges(first: Integers, last: Integers, lengths: Integers) -> None:
    """ParameterError unless 0 <= first <= last <= lengths."""
    wrong = np.flatnonzero((first < 0) | (last > lengths) | (first > last))
    if wrong.size:
        k = int(wrong[0])
        raise ParameterError(
            f"starts[{k}] = {first[k]}, stops[{k}] = {last[k]}: expected 0 <= start <= stop <= {lengths[k]}"
        )


def as_indices(name: str, values: object) -> Integers:
    """`values` as integers, int64[q]; ParameterError about `name` if they are none."""
    row = as_array(values)
    if row is None:
        raise ParameterError(f"{name} is a {type(values).__name__} that is no array: expected whole numbers, one row")
    array = np.atleast_1d(row)
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        raise ParameterError(
            f"{name} has shape {array.shape} and dtype {kind_of(array.dtype)}: expected whole numbers, one row"
        )
    return np.ascontiguousarray(array, dtype=np.int64)
