"""The data sets of papers, as listed in ``catalogue.toml``: real ones with terms and sources, and ToPS Table 1."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastdp import validation
from fastdp._lazy import imported
from fastdp.errors import DataError, StateError
from fastdp.kinds import Floats, Json
from fastdp.state.atomic_files import atomic_file
from fastdp_lab.datasets import files

LISTED: Json = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())


@dataclass(frozen=True)
class Entry:
    """A public data set.

    Attributes
    ----------
    title : str
        Meaning of a value.
    file : str
        Its file's name.
    url : str or None
        The file; None where its terms forbid copies.
    page : str
        The page that describes it.
    licence : str
        The terms as far as we found them stated; read the page before use.
    megabytes : float
        Size of the download, about.
    bound : float or None
        Public bound of a value; None for points in the plane.
    column : str
        The column that is the stream.
    reader : str
        The function of :mod:`fastdp_lab.datasets.files` that reads the file.
    sha256 : str or None
        Of the file; a ``url`` that begins with http:// needs it.
    """

    title: str
    file: str
    page: str
    licence: str
    megabytes: float
    column: str
    reader: str
    url: str | None = None
    bound: float | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class Row:
    """A row of Table 1."""

    length: int
    bound: int
    quantiles: tuple[int, int, int, int]
    mean: float
    least: int


CATALOGUE = {name: Entry(**fields) for name, fields in LISTED["download"].items()}
#: Table 1 of ToPS.
TABLE1 = {
    name: Row(**fields | {"quantiles": tuple(fields["quantiles"])}) for name, fields in LISTED["table1"].items()
}


def _pooch() -> Any:
    told = "data sets need pooch, which is not installed: pip install 'fastdp-streams[lab]'"
    return imported("pooch", StateError(told))


def cache_folder() -> Path:
    """Folder of downloads: $FASTDP_DATA, or ``fastdp`` in the user's cache folder."""
    return Path(os.environ.get("FASTDP_DATA") or _pooch().os_cache("fastdp"))


def path_of(name: str, folder: Path | None = None) -> Path:
    """Path of a catalogue entry's file."""
    entry = CATALOGUE[validation.choice("name", name, tuple(CATALOGUE))]
    return (cache_folder() if folder is None else folder) / entry.file


def fetch(name: str, folder: Path | None = None) -> Path:
    """The file of a catalogue entry, downloaded unless it is there; DataError says how to get it by hand.

    The publishers state no digests.  That of the first download (over https, or with a known SHA-256) is kept beside
    the file, and the file is compared with it from then on.

    Parameters
    ----------
    name : str
        A name of ``CATALOGUE``.
    folder : Path, optional
        By default :func:`cache_folder`.
    """
    path = path_of(name, folder)
    if not path.exists():
        _download(CATALOGUE[name], path)
    _compare(path)
    return path


def parse(name: str, path: Path) -> files.Table:
    """The columns of a catalogue entry's file from :func:`fetch`, in order of time where it has one."""
    table: files.Table = getattr(files, CATALOGUE[validation.choice("name", name, tuple(CATALOGUE))].reader)(path)
    return table


def load(name: str, column: str | None = None, folder: Path | None = None) -> Floats:
    """A column of a catalogue entry that was downloaded: float64[n]."""
    path = path_of(name, folder)
    if not path.exists():
        raise DataError(f"{name} is not here: expected {path}; run: fastdp datasets --download {name}")
    table = parse(name, path)
    return table[validation.choice("column", column or CATALOGUE[name].column, tuple(table))]


def _download(entry: Entry, path: Path) -> None:
    if entry.url is None:
        raise DataError(
            f"{entry.file}: no download, since its terms ({entry.licence}) forbid copies. By hand: ask "
            f"for the file as {entry.page} says and put it at {path}"
        )
    if entry.sha256 is None and not entry.url.startswith("https://"):
        raise DataError(
            f"{entry.file}: no download, since {entry.url} is not encrypted and no SHA-256 of it is known, so anyone "
            f"on the way could replace it. By hand: fetch that file in a way that you trust and put it at {path}"
        )
    try:
        _pooch().retrieve(entry.url, known_hash=entry.sha256, fname=path.name, path=path.parent)
    except (OSError, ValueError) as error:
        reason = str(error).partition("\n")[0][:200]
        raise DataError(
            f"{entry.url}: no download ({type(error).__name__}: {reason}). By hand: fetch that file (described at "
            f"{entry.page}) and put it at {path}"
        ) from None


def _compare(path: Path) -> None:
    digest, noted = _pooch().file_hash(path), path.with_name(path.name + ".sha256")
    if not noted.exists():
        with atomic_file(noted, overwrite=True) as out:
            out.write(digest.encode())
    elif noted.read_text() != digest:
        raise DataError(
            f"{path}: SHA-256 {digest} is not {noted.read_text()}, that of the first download; "
            f"expected the same file (or remove both it and {noted.name})"
        )
