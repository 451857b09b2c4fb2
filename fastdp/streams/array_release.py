"""``fastdp.release`` and ``fastdp.release_many``: finished arrays in one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fastdp import validation
from fastdp.data.column import Nonfinite, as_column, as_floats, check_size
from fastdp.data.files import read_numbers
from fastdp.data.frames import StreamColumns, as_streams, source_of
from fastdp.guarantee import Account, charge, check_charge
from fastdp.kinds import Indices, Values
from fastdp.noise.key import Key, stream_key
from fastdp.perturbers import Blocks
from fastdp.releases.array_answer import ArrayAnswer
from fastdp.releases.release import Release
from fastdp.streams.array_rule import ArrayRule, array_rule
from fastdp.streams.methods import Adaptive
from fastdp.streams.parameters import noise_key
from fastdp.streams.release_many import (
    borders_of,
    concurrently,
    guarantee_of_many,
    names_of,
    of_one_length,
    release_rows,
)
from fastdp.thresholds import Threshold
from fastdp.thresholds.base import as_rule


@validation.plain
def release(
    values: Values,
    epsilon: float,
    bound: float | None = None,
    *,
    sensitivity: float | None = None,
    contributions: int = 1,
    delta: float = 0.0,
    threshold: Threshold | float | None = None,
    season: float | None = None,
    nonfinite: Nonfinite = "raise",
    ledger: Account | None = None,
    stream: str | None = None,
    part: str | None = None,
    seed: int | str | None = None,
    key: Key | bytes | None = None,
) -> Release:
    """Release a finished array of values under differential privacy: one answer whose sums and intervals agree.

    Nothing is withheld: parts of epsilon choose a threshold and a number of equal blocks, and measure the total and
    the blocks; few values at a small epsilon all become their mean (``docs/streams.md``).  While a stream runs,
    publish with :class:`fastdp.Adaptive` or :class:`fastdp.ToPS`.

    Parameters
    ----------
    values : array-like
        The stream, in order: a list, NumPy array, pandas or polars series, Arrow array; or a path or
        :class:`fastdp.Csv` of one column.
    epsilon : float
        Privacy loss for one value of the stream.
    bound : float
        Public upper bound of a value, not computed from the data; None with a sensitivity.
    sensitivity : float, optional
        In place of a bound, for counts: the most by which one event moves one value; blocks follow values as in
        :class:`fastdp.Adaptive`.
    contributions : int
        Consecutive values, or events, that epsilon protects together.
    delta : float
        Above 0: Gaussian noise and an (epsilon, delta)-DP release, for units of many values.
    threshold : Threshold or float, optional
        A rule of :mod:`fastdp.thresholds`, or a publicly known number, which costs nothing.
    season : float, optional
        Public period in values, at least 2: the answer follows waves that released sums show.
    nonfinite : "raise" or "zero"
        Missing values, NaN and infinity are refused, or count as 0.
    ledger : Ledger, optional
        Reserves the release; refuses it beyond a limit, or if it would reuse an entry's noise.
    stream : str, optional
        The stream's name, which a ledger needs; under one key, other names get independent noise.
    part : str, optional
        With a ledger: label of this partition of the stream.
    seed : int or str, optional
        Simulation: reproducible noise, no privacy.
    key : Key or 32 bytes, optional
        A secret of your own (:meth:`fastdp.Key.from_bytes`); never for two inputs with equal parameters unless their
        ``stream`` differs.  By default the operating system's.

    Returns
    -------
    Release
        The private stream with its guarantee.

    Raises
    ------
    ParameterError, DataError
        For an argument that is not accepted; an error about values leaves the ledger's budget spent.
    BudgetError
        If the ledger refuses the release.

    Examples
    --------
    >>> import numpy as np, fastdp
    >>> values = np.random.default_rng(2).gamma(2.0, 9.0, 4000)
    >>> released = fastdp.release(values, epsilon=1.0, bound=100, seed=1)
    >>> print(released.guarantee)  # doctest: +ELLIPSIS
    epsilon = 1 for one value of the stream (replace one value), central model, exact on this machine, SIMULATED...
    >>> released.sum([0, 100], [4000, 300]).shape
    (2,)
    """
    # Whether every entry of a list is a number depends on the data: it is checked once the budget is reserved.
    given, values = values, read_numbers(values)
    column: Any = values if _is_list(values) else as_column(values, "values")
    size, secret = len(column), Key.choose(seed, key)
    check_charge(ledger, stream, part)
    if stream is not None:
        secret = stream_key(secret, stream)
    options: dict[str, Any] = {"contributions": contributions, "delta": delta, "nonfinite": nonfinite, "key": secret}
    publisher: Adaptive | ArrayRule
    if sensitivity is not None:
        publisher = Adaptive(
            epsilon,
            bound,
            0,
            threshold=threshold,
            sensitivity=sensitivity,
            perturber=Blocks(season=season),
            **options,
        )
        check_size(size, 0)
    else:
        check_size(size, 0)
        rule = None if threshold is None else as_rule("threshold", threshold)
        publisher = array_rule(size, epsilon, bound, threshold=rule, season=season, **options)
    with charge(publisher, ledger, stream, part=part):
        made = publisher.release(column)
    return replace(made.revised, source=source_of(given))


def _is_list(values: object) -> bool:
    if isinstance(values, Sequence):
        return not isinstance(values, (str, bytes, bytearray))
    dtype = getattr(values, "dtype", None)
    return isinstance(dtype, np.dtype) and dtype.kind == "O" and getattr(values, "ndim", 0) == 1


@validation.plain
def release_many(
    streams: StreamColumns,
    epsilon: float,
    bound: float | None = None,
    *,
    value: str | None = None,
    by: str | None = None,
    time: str | None = None,
    offsets: Values | None = None,
    ids: Values | Sequence[int | str] | None = None,
    sensitivity: float | None = None,
    threshold: Threshold | float | None = None,
    nonfinite: Nonfinite = "raise",
    threads: int = 1,
    seed: int | str | None = None,
    key: Key | bytes | None = None,
) -> Release:
    """Release many independent finished streams, say of 10,000 meters, each as :func:`fastdp.release` does.

    By the paper's method: ``fastdp.ToPS(1.0, 5.0, threshold=2.0).release_many(streams)``.

    Parameters
    ----------
    streams : array-like, mapping or data frame
        Each stream in order: rows of an array, a list of columns, a mapping of ids to columns, an Arrow or polars
        column of lists, or with ``offsets`` one column.  Columns of a data frame (pandas, polars, Arrow, DuckDB) are
        streams; with ``value`` and ``by`` its rows are values.
    epsilon : float
        Privacy loss for one value of one stream.
    value, by, time : str, optional
        Columns of a data frame: values, ids of their streams, and times (timestamps, dates or numbers) that order a
        stream; by default the frame's order.  Ids and lengths of streams are public.
    offsets : int[n + 1], optional
        Borders of the streams in a column, ascending from 0.
    ids : int[n] or str[n], optional
        Distinct names of the streams, or numbers from 0 to 2^32 - 2; by default the mapping's or frame's, else
        indices.
    threads : int
        Largest number of threads; the output does not depend on it.
    bound, sensitivity, threshold, nonfinite, seed, key
        As for :func:`fastdp.release`.  Never use one key with the same parameters and id for two streams, or an
        altered copy: equal sums would have equal noise (``docs/sharp_edges.md``).

    Returns
    -------
    Release
        All streams: stream i is ``fastdp.release(streams[i], ..., key=key.of_stream(ids[i]))``.  ``many["meter-7"]``
        is the stream of that name, ``many.frame`` a data frame of the input's family.

    Raises
    ------
    ParameterError, DataError
        For an argument that is not accepted; nothing is released.

    Notes
    -----
    Privacy: each value is in one stream, so all cost what one does; a person's values in several add up.

    Examples
    --------
    >>> import numpy as np, fastdp
    >>> meters = np.full((500, 96), 0.4)
    >>> day = fastdp.release_many(meters, 1.0, 5.0, seed=1)
    >>> day.matrix.shape
    (500, 96)
    """
    threads = validation.threads(threads)
    read = as_streams(streams, offsets, value, by, time)
    rows, lengths, secret = read.rows, read.rows.lengths, Key.choose(seed, key)
    names = names_of(read, ids, 0, secret)
    rule = None if threshold is None else as_rule("threshold", threshold)
    if sensitivity is not None:
        publisher = Adaptive(
            epsilon, bound, 0, threshold=rule, sensitivity=sensitivity, nonfinite=nonfinite, key=secret
        )
        return release_rows(publisher.composition, secret, read, names, threads).revised
    rules = {
        size: array_rule(size, epsilon, bound, threshold=rule, nonfinite=nonfinite, key=secret)
        for size in sorted({1, *lengths.tolist()})
    }
    given: list[int | str] = [name if isinstance(name, str) else int(name) for name in names]
    made: list[ArrayAnswer | None] = [None] * rows.size
    released = np.empty(int(lengths.sum()))
    borders = borders_of(lengths)

    def publish(which: Indices) -> None:
        size, indices = int(lengths[which[0]]), which.tolist()
        values, starts = rows.take(which, 0)
        # Rows of one array lie in it as they are; others come alone.
        floats = [as_floats(values[start : start + size]) for start in starts.tolist()]
        noise = rules[size].noise_of(secret, [given[i] for i in indices])
        answers = rules[size].answers(floats, [f"streams[{i}]" for i in indices], noise)
        for i, answer in zip(indices, answers, strict=True):
            made[i], released[borders[i] : borders[i + 1]] = answer, answer.values

    concurrently(threads, publish, of_one_length(lengths))
    released.flags.writeable = False
    answers, longest = tuple(one for one in made if one is not None), rules[max(rules)]
    return Release(
        values=released,
        offset=0,
        thresholds=np.array([one.threshold * one.scale for one in answers]),
        guarantee=guarantee_of_many(longest.guarantee),
        ids=names,
        borders=borders,
        source=read.source,
        noise_fingerprint=None if secret.simulated else f"{noise_key(longest, secret.of_stream(0)).family.hex()}:*",
        answers=answers,
    )
