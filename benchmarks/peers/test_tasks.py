"""The groups of ``python -m benchmarks speed streams`` and ``local`` under pytest-benchmark, one row a task.

``--benchmark-json FILE`` adds nanoseconds an item to ``extra_info``: tasks differ in their number of draws.
"""

from typing import Any

import pytest

from benchmarks.shared import DATA
from benchmarks.speed import local, streams

GROUPS = [make() for module in (streams, local) for make in module.groups(DATA)]
TASKS = [
    pytest.param(group, name, id=f"{group.name}: {name}", marks=pytest.mark.benchmark(group=group.name))
    for group in GROUPS
    for name in (*group.tasks, *group.slow)
]


@pytest.mark.parametrize(("group", "name"), TASKS)
def test_task(benchmark: Any, group: Any, name: str) -> None:
    slow = name in group.slow

    def prepare() -> None:
        # Without a result: pytest-benchmark takes one for arguments.
        group.prepare.get(name, list)()

    benchmark.pedantic(
        (group.slow if slow else group.tasks)[name],
        setup=prepare,
        rounds=1 if slow else 15,
        iterations=1,
        warmup_rounds=0 if slow else 2,
    )
    if benchmark.stats is not None:
        benchmark.extra_info["ns_per_item"] = benchmark.stats.stats.median / group.items.get(name, 1) * 1e9
