"""Values from NumPy's own files: .npy through memory maps, .npz."""

from __future__ import annotations

from pathlib import Path
from tokenize import TokenError
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from fastdp.arrays.column import as_column, as_floats, kind_of
from fastdp.errors import DataError
from fastdp.files.readers import Chunks, Source
from fastdp.files.text import pick_column

#: What NumPy and the archive's reader raise on damaged files; headers are parsed as Python literals.
DAMAGE = (
    ValueError,
    EOFError,
    SyntaxError,
    TokenError,
    OverflowError,
    MemoryError,
    NotImplementedError,
    RuntimeError,
)
#: NumPy's own words would quote the file, and advise to unpickle it, which would be unsafe.
_FOREIGN = "damaged, not in NumPy's format, or pickled objects"


def open_npy(path: Path, column: str | None, chunk_size: int) -> Source:
    """Open an .npy file of one row of numbers, of several columns, or of named fields.

    Only the part being read is mapped, so that resident memory does not grow with the file.
    """
    try:
        whole = np.load(path, mmap_mode="r", allow_pickle=False)
    except DAMAGE:
        raise DataError(f"{path}: not a readable .npy file ({_FOREIGN})") from None
    if not isinstance(whole, np.ndarray):
        raise DataError(f"{path}: not a readable .npy file (it is an archive; expected the suffix .npz)")
    field, index = _locate(whole, column, path)
    _check(whole[field] if field is not None else whole, str(path))
    return Source(str(path), _windows(path, whole, field, index, chunk_size), len(whole))


def _locate(whole: NDArray[Any], column: str | None, path: Path) -> tuple[str | None, int | None]:
    """The named field or the numbered column that is requested; neither for one row of numbers."""
    if whole.ndim not in (1, 2) or (whole.dtype.names and whole.ndim != 1):
        raise DataError(f"{path} has shape {whole.shape}: expected one row of numbers, or columns")
    if whole.dtype.names:
        names = whole.dtype.names
        return names[pick_column(column, names, len(names), str(path))], None
    width = whole.shape[1] if whole.ndim == 2 else 1
    if width == 0:
        raise DataError(f"{path} has shape {whole.shape}: expected at least one column")
    index = pick_column(column, None, width, str(path))
    return None, index if whole.ndim == 2 else None


def _check(array: NDArray[Any], where: str) -> None:
    if array.dtype.kind not in "biuf":
        raise DataError(f"{where} holds {kind_of(array.dtype)} entries: expected real numbers")


def _windows(path: Path, whole: Any, field: str | None, index: int | None, chunk_size: int) -> Chunks:
    offset, dtype, count = whole.offset, whole.dtype, len(whole)
    width = whole.shape[1] if whole.ndim == 2 else None
    by_columns = whole.ndim == 2 and not whole.flags.c_contiguous
    for start in range(0, count, chunk_size):
        stop = min(start + chunk_size, count)
        shape: tuple[int, ...] = (stop - start,)
        first = start
        if by_columns:
            first += (index or 0) * count
        elif width is not None:
            first *= width
            shape = (stop - start, width)
        part: Any = np.memmap(path, dtype, "r", offset + first * dtype.itemsize, shape)
        if field is not None:
            part = part[field]
        elif len(shape) == 2:
            part = part[:, index]
        # A copy: the map closes before the next one opens.
        yield np.array(part, dtype=np.float64)


def open_npz(path: Path, column: str | None, chunk_size: int) -> Source:
    """Open one array of an .npz file; ``column`` names it where there are several."""
    # Opened here, because NumPy leaves a damaged archive open.
    with path.open("rb") as file:
        array, where = _read_member(file, column, path)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    _check(array, where)
    if array.ndim != 1:
        raise DataError(f"{where} has shape {array.shape}: expected one row of numbers")
    chunks = (as_floats(as_column(array[at : at + chunk_size])) for at in range(0, array.size, chunk_size))
    return Source(str(path), chunks, array.size)


def _read_member(file: BinaryIO, column: str | None, path: Path) -> tuple[NDArray[Any], str]:
    try:
        archive = np.load(file, allow_pickle=False)
    except DAMAGE:
        raise DataError(f"{path}: not a readable .npz file ({_FOREIGN})") from None
    if isinstance(archive, np.ndarray):
        raise DataError(f"{path}: not a readable .npz file (it is a single array; expected the suffix .npy)")
    with archive:
        names = archive.files
        if not names:
            raise DataError(f"{path}: holds no array")
        name = names[pick_column(column, names, len(names), str(path))]
        where = f"{path}, array {name!r}"
        try:
            array = archive[name]
        except DAMAGE:
            raise DataError(f"{where}: not readable ({_FOREIGN})") from None
    if not isinstance(array, np.ndarray):
        raise DataError(f"{where}: not a NumPy array")
    return array, where
