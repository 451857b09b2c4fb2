"""Dask 2026.8: data frames by partition."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from fastdp.data.column import arrow
from fastdp.data.files import is_parquet, open_dataset
from fastdp.data.source import EngineTable, Source, open_source
from fastdp.engines.job import Foreign, Job, engine, publish
from fastdp.engines.windows import parts_of_persons
from fastdp.errors import ParameterError
from fastdp.kinds import Integers


def release(frame: Foreign, job: Job, *, id: str, order: str, value: str, into: str = "published") -> Foreign:
    """Publish the streams of a finished Dask data frame, each from its first row.

    Parameters
    ----------
    frame : dask.dataframe.DataFrame
        Rows of many streams, stored, so that a repeated task reads the same.
    job : Job
        Mechanism, name and location of the secret.
    id, order, value : str
        Columns of ids (texts or integers), order within the stream, and values.
    into : str
        The column to add.

    Returns
    -------
    dask.dataframe.DataFrame
        The rows that publish, without ``value``; each stream in order in one partition.
    """
    engine("dask", "dask.dataframe")
    meta = frame._meta.drop(columns=value).assign(**{into: 0.0})
    whole = frame.shuffle(on=id)
    return whole.map_partitions(_partition, job, id, order, value, into, meta=meta)


def _partition(frame: Foreign, job: Job, name: str, order: str, value: str, into: str) -> Foreign:
    ordered = frame.sort_values([name, order, value])
    rows, out = publish(job.fleet(), ordered[name].to_numpy(), ordered[value].to_numpy())
    return ordered.iloc[rows].drop(columns=value).assign(**{into: out})


# Tables beyond one machine: tasks add integers, the client draws the noise.

#: Partial sums that one task adds up.
FAN_IN = 8


def table(frame: Foreign) -> EngineTable:
    """A Dask data frame, or files, as the table of :func:`fastdp.aggregate`, ``totals``, ``counts`` and ``means``.

    Parameters
    ----------
    frame : dask.dataframe.DataFrame or path
        Parquet or CSV files, or folders of Parquet, that all workers reach are read by a task for each file, or row
        group of a single one, on this process's ``distributed.Client`` or threads.

    Returns
    -------
    EngineTable
        Windows and keys must be public: a :class:`fastdp.Time` with ``start`` and ``stop``, ``keys`` with ``by``.
        Distinct entries, reach of :class:`fastdp.Rows` and ``Person(rows="auto")`` need one machine.  The release
        equals one machine's bit for bit.

    Notes
    -----
    The cluster's operator sees sums without noise; with a :class:`fastdp.Person` workers get the hash key, never the
    noise's.  Errors number rows within a partition.
    """
    return EngineTable(partial(_open, frame))


def _open(frame: Foreign, columns: Sequence[str]) -> Source:
    delayed = engine("dask", "dask").delayed
    if isinstance(frame, (str, os.PathLike)):
        whole, parts = open_source(frame, columns), [delayed(part, traverse=False) for part in _parts(frame)]
    elif hasattr(frame, "to_delayed") and hasattr(frame, "_meta"):
        whole, parts = open_source(frame._meta, columns), frame[list(dict.fromkeys(columns))].to_delayed()
    else:
        raise ParameterError(
            f"frame is a {type(frame).__name__}: expected a dask.dataframe.DataFrame, or the path of Parquet or CSV "
            "files that all workers reach"
        )
    return replace(whole, rows=None, add=partial(_added, parts, whole.columns))


def _parts(path: str | os.PathLike[str]) -> list[Foreign]:
    from pyarrow.dataset import FileSystemDataset

    text = os.fsdecode(path)
    if not is_parquet(text):
        return [path]
    dataset = open_dataset(text)
    found = list(dataset.get_fragments())
    if len(found) == 1:
        found = found[0].split_by_row_group() or found
    return [FileSystemDataset([each], dataset.schema, dataset.format, dataset.filesystem) for each in found]


def _added(
    parts: list[Foreign],
    columns: Sequence[str],
    work: Callable[[Source], Integers],
    who: str | None,
) -> Integers:
    """Sum of `work` over parts with all rows of their persons."""
    delayed = engine("dask", "dask").delayed
    read = partial(open_source, columns=columns)
    if who is not None and len(parts) > 1:
        pieces = [delayed(_split, nout=len(parts))(read, part, who, len(parts)) for part in parts]
        # Types may differ between parts, where one is empty or a number is missing.
        joined = partial(arrow.concat_tables, promote_options="permissive")
        parts = [delayed(joined)(list(same)) for same in zip(*pieces, strict=True)]
    sums = [delayed(_worked)(work, read, part) for part in parts]
    while len(sums) > 1:
        sums = [delayed(sum)(sums[k : k + FAN_IN]) for k in range(0, len(sums), FAN_IN)]
    found: Integers = sums[0].compute()
    return found


def _worked(work: Callable[[Source], Integers], read: Callable[[Foreign], Source], part: Foreign) -> Integers:
    return work(read(part))


def _split(read: Callable[[Foreign], Source], part: Foreign, who: str, parts: int) -> list[Foreign]:
    rows = read(part).table()
    for i, field in enumerate(rows.schema):
        if arrow.types.is_dictionary(field.type):
            rows = rows.set_column(i, field.name, rows.column(i).cast(field.type.value_type))
    owners, _ = parts_of_persons(rows.column(who).combine_chunks(), parts)
    return [rows.filter(arrow.array(owners == k)) for k in range(parts)]
