"""``keys="public"`` releases the keys of all rows: no rule that drops rows, and so no person, moves them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fastdp.data import source
from fastdp.tables import functions
from tests.tables import flat

pytestmark = pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
N = 2_000
#: Options, and the column and entry by which the rows with key c of all but one person are dropped.
FORMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "who": ({"who": "who"}, {}),
    "who, period": ({"who": "who", "period": "1d"}, {}),
    "who, per_window": ({"who": "who", "contributions": 2, "per_window": 1}, {}),
    "start": ({"start": "2024-01-01"}, {"at": "2023-06-01"}),
    "start, stop, who": ({"start": "2024-01-01", "stop": "2024-01-02", "who": "who"}, {"at": "2025-06-01"}),
    "no time": ({"missing": "drop"}, {"at": None}),
    "no person": ({"missing": "drop", "who": "who"}, {"who": None}),
}


def persons(with_one_more: bool, drops: dict[str, Any]) -> pd.DataFrame:
    """2,000 persons with a row of key a and then one of key c, and perhaps a person with one row, of key c."""
    frame = pd.DataFrame(
        {"at": pd.Timestamp("2024-01-01"), "k": ["a", "c"] * N, "who": [i // 2 for i in range(2 * N)]}
    )
    for column, entry in drops.items():
        frame.loc[frame["k"] == "c", column] = pd.Timestamp(entry) if column == "at" and entry else entry
    one = pd.DataFrame({"at": [pd.Timestamp("2024-01-01")], "k": ["c"], "who": [N]})
    return pd.concat([frame, one], ignore_index=True) if with_one_more else frame


@pytest.mark.parametrize("stored", ["pandas", "parquet"])
@pytest.mark.parametrize("form", FORMS)
def test_one_person_moves_keys_and_report_by_one(form: str, stored: str, tmp_path: Path) -> None:
    options, drops = FORMS[form]
    found = []
    for with_one_more in (False, True):
        frame: Any = persons(with_one_more, drops)
        if stored == "parquet":
            frame.to_parquet(tmp_path / "rows.parquet", row_group_size=300)
            frame = tmp_path / "rows.parquet"
        # Next to no noise.
        found.append(flat.counts(frame, "at", "1d", by="k", keys="public", epsilon=1e6, seed=1, **options).released)
    assert [sums.keys for sums in found] == [{"k": ["a", "c"]}] * 2
    assert abs(found[1].cells("count") - found[0].cells("count")).sum() == 1
    without, with_one_more = (flat.kept_rows(sums) for sums in found)
    assert (without is None) is ("who" not in options)
    if without is not None:
        assert abs(with_one_more - without) < 2 / N


def test_keys_of_other_windows_and_persons_have_sums_of_noise_alone() -> None:
    """A key of the table that no row that counts has is released as any other, beside a chosen clip too."""
    frame = persons(False, {"at": "2023-06-01"}).assign(v=1.0)
    found = flat.totals(
        *(frame, "v", "at", "1d"), by="k", keys="public", bound=4.0, epsilon=1e6, start="2024-01-01", seed=1
    )
    assert found.released.keys == {"k": ["a", "c"]}
    assert flat.values(found.released, "total").tolist() == [pytest.approx([N, 0.0], abs=0.01)]
    assert "keys='public'" in " ".join(found.guarantee.derivation)


@pytest.mark.parametrize("held", [0, 5_000, 2**28])
def test_rows_are_read_once_if_they_fit_into_memory(monkeypatch: pytest.MonkeyPatch, held: int) -> None:
    """Columns that do not fit are read again, from the first row on."""
    read: list[int] = []

    def batches(begin: Any) -> Any:
        read.append(1)
        return begin()

    monkeypatch.setattr(source, "BATCH", 300)
    eager = source._eager
    monkeypatch.setattr(source, "_eager", lambda frame: batches(lambda: eager(frame)))
    monkeypatch.setattr(functions, "MOST_HELD", held)
    found = flat.counts(persons(False, {}), "at", "1d", by="k", keys="public", epsilon=1e6, seed=1).released
    assert found.cells("count").tolist() == [[N, N]]
    assert len(read) == (1 if held > 5_000 else 2)
