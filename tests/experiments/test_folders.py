"""Folders and numbers of sweeps that the code before ``Study`` wrote: read, continued, and the same for good.

``fixtures/`` holds two sweeps that were interrupted after five parts, with fastdp at commit dafb55e.
"""

from __future__ import annotations

import copy
import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from fastdp import experiments
from fastdp._version import __version__
from fastdp.experiments import runner
from tests.experiments.conftest import SMALL
from tests.experiments.test_spatial import SPATIAL

FIXTURES = Path(__file__).parent / "fixtures"
#: Rows of the finished table, and a digest of its labels and of its numbers to nine digits.  ToPL's default threshold
#: was linear when the first parts of "small" were written; those of the parts that follow are logarithmic, with the
#: tail's bias five times as large.
WANT = {"small": (864, "dffef6e5016e639d"), "spatial": (2736, "dc17a2dbf0e8c365")}
TABLES = {"small": SMALL, "spatial": SPATIAL}


def digest(folder: Path) -> tuple[int, str]:
    table = experiments.load(folder)
    text = table.to_csv(index=False, float_format="%.9g").encode()
    return len(table), hashlib.sha256(text).hexdigest()[:16]


@pytest.mark.parametrize("name", WANT)
def test_an_unfinished_folder_is_continued(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas")
    folder = tmp_path / "out"
    shutil.copytree(FIXTURES / name, folder)
    # An unfinished sweep goes on with its own version only.
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["versions"]["fastdp"] = __version__
    (folder / "manifest.json").write_text(json.dumps(manifest))
    before = experiments.load(folder)
    finished = len(list((folder / "parts").glob("*.parquet")))
    run_part, ran = runner.run_part, []
    monkeypatch.setattr(runner, "run_part", lambda *arguments: ran.append(1) or run_part(*arguments))
    experiments.run(experiments.from_table(copy.deepcopy(TABLES[name])), folder)
    assert len(ran) == len(manifest["parts"]) - finished
    after = experiments.load(folder)
    assert digest(folder) == WANT[name]
    same = after[after["cell"].isin(before["cell"].unique())].reset_index(drop=True)
    np.testing.assert_array_equal(same["answer"], before["answer"])
