"""A table is the same rows whatever library or file holds it, and whichever of its columns are used."""

from __future__ import annotations

from itertools import chain, combinations
from pathlib import Path
from typing import Any

import pytest

import fastdp
from tests.tables.rows import FAMILIES, as_family, random_rows

pytest.importorskip("pandas")
SIZE, EXACT = 400, 2.0**20
OWN = {"feather", "record batch", "xarray"}
#: Each use of a column, as the arguments of a release.
USES: dict[str, dict[str, Any]] = {
    "time": {"time": "at", "every": "1d"},
    "key": {"by": "meter", "keys": list("abcd")},
    "person": {"unit": fastdp.Person("person", rows=SIZE)},
    "value": {"statistics": {"kwh": "sum"}, "bounds": fastdp.Value(clip=9.0)},
}
SUBSETS = list(chain.from_iterable(combinations(USES, size) for size in range(len(USES) + 1)))


def as_table(rows: list[tuple], family: str, folder: Path) -> Any:
    if family not in OWN:
        return as_family(rows, family, folder)
    table = as_family(rows, "pyarrow", folder)
    if family == "record batch":
        import pyarrow as pa

        return pa.record_batch([column.combine_chunks() for column in table.columns], table.column_names)
    if family == "feather":
        import pyarrow.feather

        pyarrow.feather.write_feather(table, folder / "rows.feather")
        return folder / "rows.feather"
    pytest.importorskip("xarray")
    return table.to_pandas().rename_axis("place").to_xarray()


@pytest.mark.parametrize("used", SUBSETS, ids=lambda used: " ".join(used) or "nothing")
@pytest.mark.parametrize("family", [*FAMILIES, *sorted(OWN)])
def test_the_number_of_rows_depends_on_no_column(family: str, used: tuple[str, ...], tmp_path: Path) -> None:
    options: dict[str, Any] = {"statistics": {}, "epsilon": EXACT, "seed": 1}
    for each in used:
        options |= USES[each]
    options["statistics"] = {"*": "count"} | options["statistics"]
    table = fastdp.aggregate(as_table(random_rows(SIZE, 1), family, tmp_path), **options)
    assert round(table.released.cells("count").sum()) == SIZE


@pytest.mark.parametrize("family", [*FAMILIES, *sorted(OWN)])
def test_no_rows_are_none(family: str, tmp_path: Path) -> None:
    table = fastdp.counts(as_table(random_rows(0, 1), family, tmp_path), epsilon=EXACT, seed=1)
    assert table.estimate(0, 1).tolist() == [0.0]
