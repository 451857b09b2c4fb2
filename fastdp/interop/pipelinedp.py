"""PipelineDP's engine, parameters and extractors for rows in memory, by one ``fastdp.aggregate``."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from fastdp._lazy import imported
from fastdp.errors import DataError, ParameterError
from fastdp.tables.functions import aggregate
from fastdp.units import Person
from fastdp.validation import refusal

#: Parameters of ``AggregateParams`` that change what is released, and that no release here has.
_OTHERS = (
    *("custom_combiners", "min_sum_per_partition", "vector_size", "contribution_bounds_already_enforced"),
    *("pre_threshold", "post_aggregation_thresholding", "output_noise_stddev"),
)
#: Columns of the rows.
_WHO, _KEY, _VALUE = "privacy_id", "partition", "value"
_STATISTICS = {
    "VARIANCE": (_VALUE, "var"),
    "COUNT": ("*", "count"),
    "SUM": (_VALUE, "sum"),
    "MEAN": (_VALUE, "mean"),
    "PRIVACY_ID_COUNT": (_WHO, "nunique"),
}


def _package(name: str) -> Any:
    return imported(name, ParameterError("pipeline_dp is not installed: pip install pipeline-dp"))


def __getattr__(name: str) -> Any:
    """All other names of ``pipeline_dp``, so that programs change one import."""
    if name.startswith("_"):
        raise AttributeError(name)
    return getattr(_package("pipeline_dp"), name)


class DPEngine:
    """``pipeline_dp.DPEngine`` over an iterable of rows: the same calls, with exact noise, many times faster.

    Parameters
    ----------
    budget_accountant : pipeline_dp.NaiveBudgetAccountant
        Divides epsilon and delta among the aggregations by their ``budget_weight``.
    backend : object, optional
        Unused: rows are read here.

    Examples
    --------
    >>> import pipeline_dp as p
    >>> from fastdp.interop.pipelinedp import DPEngine
    >>> accountant = p.NaiveBudgetAccountant(1.0, 1e-6)
    >>> engine = DPEngine(accountant)
    >>> params = p.AggregateParams(
    ...     noise_kind=p.NoiseKind.LAPLACE,
    ...     metrics=[p.Metrics.COUNT],
    ...     max_partitions_contributed=1,
    ...     max_contributions_per_partition=1,
    ... )
    >>> take = p.DataExtractors(
    ...     privacy_id_extractor=lambda row: row[0],
    ...     partition_extractor=lambda row: row[1],
    ... )
    >>> rows = [(1, "a"), (2, "a")]
    >>> found = engine.aggregate(rows, params, take, ["a", "b"])
    >>> accountant.compute_budgets()
    >>> [key for key, metrics in found]
    ['a', 'b']
    """

    def __init__(self, budget_accountant: Any, backend: Any = None) -> None:
        if type(budget_accountant).__name__ != "NaiveBudgetAccountant":
            kind = type(budget_accountant).__name__
            raise ParameterError(f"budget_accountant is a {kind}: expected a pipeline_dp.NaiveBudgetAccountant")
        self._accountant, self._backend = budget_accountant, backend

    def aggregate(
        self,
        col: Iterable[Any],
        params: Any,
        data_extractors: Any,
        public_partitions: Iterable[Any] | None = None,
        out_explain_computation_report: Any = None,
    ) -> Released:
        """Pairs of a partition and its metrics, released when the first is read.

        Parameters
        ----------
        col : iterable
            Rows.
        params : pipeline_dp.AggregateParams
            A person's ``max_contributions`` rows count, or the product of the two other bounds.
        data_extractors : pipeline_dp.DataExtractors
            Functions of a row; partitions are texts or whole numbers.
        public_partitions : iterable, optional
            Without it partitions are chosen privately by delta.
        out_explain_computation_report : pipeline_dp.ExplainComputationReport, optional
            Its ``text()`` says what is released.

        Returns
        -------
        iterable of (partition, MetricsTuple)
            The release is made once.

        Raises
        ------
        ParameterError
            For metrics or bounds that fastdp lacks; on iteration before ``compute_budgets``.
        """
        statistics, fields = _asked(params)
        rows = params.max_contributions or params.max_partitions_contributed * (
            params.max_contributions_per_partition or 1
        )
        gaussian = str(params.noise_kind).endswith("GAUSSIAN")
        kinds = _package("pipeline_dp.aggregate_params")
        kind = kinds.MechanismType.GAUSSIAN if gaussian else kinds.MechanismType.GENERIC
        with self._accountant.scope(weight=params.budget_weight):
            private = public_partitions is None
            spec = self._accountant.request_budget(kind if gaussian or private else kinds.MechanismType.LAPLACE)

        def release() -> list[tuple[Any, Any]]:
            taken = {_WHO: data_extractors.privacy_id_extractor, _KEY: data_extractors.partition_extractor}
            values = _VALUE in statistics
            if values:
                taken[_VALUE] = data_extractors.value_extractor
            table = aggregate(
                _table(col, taken),
                statistics,
                by=_KEY,
                keys=None if public_partitions is None else list(public_partitions),
                epsilon=spec.eps,
                delta=spec.delta or 0.0,
                unit=Person(_WHO, rows=rows),
                bounds={_VALUE: (float(params.min_value), float(params.max_value))} if values else None,
            )
            made: Callable[..., Any] = namedtuple("MetricsTuple", list(fields.values()))  # type: ignore[misc]
            # Intervals, of which a frame has six columns each, take as long as a quarter of the release.
            columns = [table[name].estimate(0, 1).ravel().tolist() for name in fields]
            return list(zip(table.keys[_KEY], map(made, *columns), strict=True))

        def report() -> str:
            spent = "" if not spec.delta else f", delta = {spec.delta:g}"
            named = "private" if private else "public"
            return (
                f"{', '.join(fields.values())} by one fastdp.aggregate: epsilon = {spec.eps:g}{spent} for at most "
                f"{rows} rows of a person, {named} partitions"
            )

        released = Released(self._accountant, release, report)
        if out_explain_computation_report is not None:
            out_explain_computation_report._set_report_generator(released)
        return released


class Released:
    """Pairs of a partition and its metrics, given the budget."""

    def __init__(
        self, accountant: Any, release: Callable[[], list[tuple[Any, Any]]], report: Callable[[], str]
    ) -> None:
        self._accountant, self._release, self._report = accountant, release, report
        self._pairs: list[tuple[Any, Any]] | None = None

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        self._check()
        if self._pairs is None:
            self._pairs = self._release()
        return iter(self._pairs)

    def report(self) -> str:
        """Sentence of the release, for ``pipeline_dp.ExplainComputationReport``."""
        self._check()
        return self._report()

    def _check(self) -> None:
        if not self._accountant.finalized:
            raise ParameterError("the budget is not known yet: expected accountant.compute_budgets() first")


def _table(col: Iterable[Any], taken: dict[str, Callable[[Any], Any]]) -> Any:
    pa = imported("pyarrow", ParameterError("pyarrow is not installed: pip install pyarrow"))
    rows = list(col)
    # Persons may be of any kind that has a hash.
    numbers: dict[Any, int] = {}
    columns = {}
    for name, take in taken.items():
        entries = list(map(take, rows))
        try:
            columns[name] = pa.array(
                [numbers.setdefault(each, len(numbers)) for each in entries] if name == _WHO else entries
            )
        except (pa.ArrowException, TypeError):
            wanted = {_WHO: "entries with a hash", _KEY: "texts or whole numbers, of one kind", _VALUE: "numbers"}
            raise DataError(f"{name}: expected {wanted[name]}") from None
    return pa.table(columns)


def _asked(params: Any) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Statistics for ``fastdp.aggregate``, and names of columns and metrics."""
    for name in _OTHERS:
        if getattr(params, name) is not None and getattr(params, name) is not False:
            raise refusal(name, getattr(params, name), "None, fastdp's tables have no such release")
    statistics: dict[str, list[str]] = {}
    fields: dict[str, str] = {}
    # Callers also read results by place: variance, count, sum, mean, or mean, count, sum; percentiles are last.
    asked = params.metrics or ()
    order = [*_STATISTICS] if "VARIANCE" in map(str, asked) else ["MEAN", *_STATISTICS]
    for metric in sorted(asked, key=lambda one: order.index(str(one)) if str(one) in order else len(order)):
        name = str(metric)
        if name.startswith("PERCENTILE"):
            of, statistic = _VALUE, f"p{metric.parameter:g}"
            shown = f"percentile_{metric.parameter:g}".replace(".", "_")
        elif name in _STATISTICS:
            (of, statistic), shown = _STATISTICS[name], name.lower()
        else:
            raise refusal("metrics", name, f"{', '.join(_STATISTICS)} or PERCENTILE")
        statistics.setdefault(of, []).append(statistic)
        fields["count" if of == "*" else f"{of}_{statistic}"] = shown
    if not statistics:
        raise refusal("metrics", None, "at least one of pipeline_dp.Metrics")
    return statistics, fields
