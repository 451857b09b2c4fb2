"""Shared by the pytest-benchmark comparisons."""

from __future__ import annotations

from typing import Any

import pytest

import benchmarks  # noqa: F401 - first: it chooses the folder of compiled kernels


def pytest_configure(config: pytest.Config) -> None:
    """``--benchmark-only`` says enough: lift the project's ``--benchmark-disable`` for it."""
    if config.getoption("benchmark_only", False):
        config.option.benchmark_enable = True


@pytest.fixture
def per_item(benchmark: Any) -> Any:
    """Run a task, warmed up, and report nanoseconds an item beside the table's totals."""

    def measure(task: Any, items: int, *, rounds: int = 15) -> Any:
        result = benchmark.pedantic(task, rounds=rounds, iterations=1, warmup_rounds=2)
        benchmark.extra_info["items"] = items
        if benchmark.stats is not None:
            benchmark.extra_info["ns_per_item"] = benchmark.stats.stats.median / items * 1e9
        return result

    return measure
