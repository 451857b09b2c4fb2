"""Public data sets that the papers use: where they come from, on what terms, and how to get them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fastdp import validation
from fastdp._optional import imported
from fastdp.errors import DataError, StateError
from fastdp.files.durable import atomic_file
from fastdp_lab.datasets.formats import Table, check_ins, transaction_lengths, trip_columns


@dataclass(frozen=True)
class Entry:
    """A public data set.

    Attributes
    ----------
    title : str
        What a value is.
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
    read : callable
        Reads the file.
    sha256 : str or None
        Of the file; a ``url`` that begins with http:// needs it.
    """

    title: str
    file: str
    url: str | None
    page: str
    licence: str
    megabytes: float
    bound: float | None
    column: str
    read: Callable[[Path], Table]
    sha256: str | None = None


CATALOGUE = {
    "kosarak": Entry(
        "clicks per user of a Hungarian news portal (ToPS: Kosarak)",
        "kosarak.dat.gz",
        "http://fimi.uantwerpen.be/data/kosarak.dat.gz",
        "http://fimi.uantwerpen.be/data/",
        "given to FIMI by Ferenc Bodon; we found no stated licence: see the page",
        11.0,
        41_270.0,
        "values",
        transaction_lengths,
    ),
    "pos": Entry(
        "items per transaction of an electronics retailer, BMS-POS (ToPS: POS)",
        "BMS-POS.csv",
        None,
        "https://www.kdd.org/kdd-cup/view/kdd-cup-2000",
        "KDD Cup 2000 agreement (ecn.purdue.edu/KDDCUP/NDA): proprietary to Blue Martini Software, not to be passed "
        "on; acknowledge and cite",
        12.0,
        1657.0,
        "values",
        transaction_lengths,
    ),
    "taxi": Entry(
        "New York yellow-taxi trips of January 2019, 0.01 mile or cents (ToPS: Fare)",
        "yellow_tripdata_2019-01.parquet",
        "https://d37ci6vzurychx.cloudfront.net/trip-data/yellow_tripdata_2019-01.parquet",
        "https://www.nyc.gov/site/tlc/about/tlc-trip-record-data.page",
        "New York's Local Law 11 of 2012: public data sets without licence requirement or usage restrictions",
        110.0,
        30_000.0,
        "distance",
        trip_columns,
    ),
    "gowalla": Entry(
        "check-ins of Gowalla users, worldwide, 2009 to 2010 (PHDStream)",
        "loc-gowalla_totalCheckins.txt.gz",
        "https://snap.stanford.edu/data/loc-gowalla_totalCheckins.txt.gz",
        "https://snap.stanford.edu/data/loc-Gowalla.html",
        "not stated on SNAP's page; cite Cho, Myers and Leskovec (KDD 2011)",
        105.0,
        None,
        "t",
        check_ins,
    ),
}


def cache_folder() -> Path:
    """Where downloads are kept: $FASTDP_DATA, or ``fastdp`` in the user's cache folder."""
    chosen = os.environ.get("FASTDP_DATA")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fastdp"


def path_of(name: str, folder: Path | None = None) -> Path:
    """Where the file of a catalogue entry belongs."""
    entry = CATALOGUE[validation.choice("name", name, tuple(CATALOGUE))]
    return (cache_folder() if folder is None else folder) / entry.file


def fetch(name: str, folder: Path | None = None) -> Path:
    """The file of a catalogue entry, downloaded unless it is there.

    Parameters
    ----------
    name : str
        A name of ``CATALOGUE``.
    folder : Path, optional
        By default :func:`cache_folder`.

    Raises
    ------
    DataError
        If the network says no, or the terms do; the message has the manual way.  If a file differs from what was
        downloaded first.

    Notes
    -----
    The publishers state no digests.  That of the first download (over https, or with a known SHA-256) is kept beside
    the file, and the file is compared with it from then on.
    """
    path = path_of(name, folder)
    if not path.exists():
        _download(CATALOGUE[name], path)
    _compare(path)
    return path


def parse(name: str, path: Path) -> Table:
    """The columns of a catalogue entry's file, in order of time where it has one.

    Parameters
    ----------
    name : str
        A name of ``CATALOGUE``.
    path : Path
        From :func:`fetch`, or downloaded by hand.
    """
    return CATALOGUE[validation.choice("name", name, tuple(CATALOGUE))].read(path)


def load(name: str, column: str | None = None, folder: Path | None = None) -> NDArray[np.float64]:
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
    told = "downloads need pooch, which is not installed: pip install 'fastdp-streams[lab]'"
    pooch = imported("pooch", StateError(told))
    try:
        pooch.retrieve(entry.url, known_hash=entry.sha256, fname=path.name, path=path.parent)
    except (OSError, ValueError) as error:
        reason = str(error).partition("\n")[0][:200]
        raise DataError(
            f"{entry.url}: no download ({type(error).__name__}: {reason}). By hand: fetch that file (described at "
            f"{entry.page}) and put it at {path}"
        ) from None


def _compare(path: Path) -> None:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    noted = path.with_name(path.name + ".sha256")
    if not noted.exists():
        with atomic_file(noted, overwrite=True) as out:
            out.write(digest.hexdigest().encode())
    elif noted.read_text() != digest.hexdigest():
        raise DataError(
            f"{path}: SHA-256 {digest.hexdigest()} is not {noted.read_text()}, that of the first download; "
            f"expected the same file (or remove both it and {noted.name})"
        )
