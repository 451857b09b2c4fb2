"""The page of a benchmark suite: tables and pictures in an HTML file without scripts, and an archive."""

from __future__ import annotations

import hashlib
import math
import zipfile
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdp.kinds import Json
from fastdp_lab.mechanism import UNITS, registered
from fastdp_lab.sweeps.claims import as_row, decide
from fastdp_lab.sweeps.figures import Sweep, draw, draw_scores
from fastdp_lab.sweeps.results import MANIFEST, RESULTS
from fastdp_lab.sweeps.systems import OURS

if TYPE_CHECKING:
    from pandas import DataFrame

    from fastdp_lab.suites import Suite

PAGE, FIGURES = "index.html", "figures"
#: A mechanism that comes so near to the lowest error of a cell has it too.
NEAR = 1.1
#: Rows of cells that are printed; all are in the results.
MAX_LOST = 40
_STYLE = """
body { font: 16px/1.45 system-ui, sans-serif; margin: 0 auto; padding: 1rem; max-width: 72rem; color: #222; }
h1, h2 { line-height: 1.2; } .wide { overflow-x: auto; margin-top: 1rem; }
img { max-width: 100%; min-width: 38rem; height: auto; }
table { border-collapse: collapse; font-size: .875rem; }
th, td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid #ddd; vertical-align: top; }
th:first-child, td:first-child { text-align: left; } td.text, th.text { text-align: left; max-width: 30rem; }
td:first-child, td.text { min-width: 8rem; }
thead th { border-bottom: 2px solid #888; } tr.ours td:first-child { font-weight: 600; } .note { color: #555; }
"""


class Scores:
    """Errors of a finished suite: root mean squares over repetitions, each divided by the lowest of its cell.

    A cell is a data set, a budget and a class of queries.
    """

    def __init__(self, sweep: Sweep) -> None:
        rows: DataFrame = sweep.rows
        self.metric = "mse" if "mse" in rows else "relative_error"
        # A cell that failed was asked nothing.
        rows = rows[rows["workload"].notna()]
        kind = rows["group"].where(rows["group"] != "all", rows["workload"])
        rows = rows.assign(kind=kind)[(rows["group"] == "all") | ~rows["workload"].isin(_with_all(rows))]
        keys = ["dataset", "epsilon", "kind"]
        means = rows.groupby([*keys, "mechanism"], sort=False)[self.metric].mean()
        self.errors: DataFrame = (means**0.5 if self.metric == "mse" else means).unstack("mechanism")
        self.kinds = list(dict.fromkeys(rows["kind"]))
        lowest = self.errors.min(axis=1)
        # A sum that a mechanism has exactly right has no ratio.
        self.ratios = self.errors.div(lowest.where(lowest > 0.0), axis=0)
        covered = "coverage" in rows and rows["coverage"].notna().any()
        self.coverage = rows.groupby("mechanism")["coverage"].mean() if covered else None

    def by(self, level: str) -> DataFrame:
        """Geometric means of the ratios: a row a mechanism, a column an entry of a level."""
        logs: Any = np.log(self.ratios)
        found: DataFrame = np.exp(logs.groupby(level=level, sort=False).mean()).T
        return found

    @property
    def overall(self) -> Any:
        """Geometric mean of all ratios by mechanism, the best first."""
        return np.exp(np.log(self.ratios).mean()).sort_values()


def _with_all(rows: DataFrame) -> list[str]:
    """Workloads that have a group of all queries."""
    return list(rows.loc[rows["group"] == "all", "workload"].unique())


def write_page(folder: Path, suite: Suite, seconds: Json) -> Path:
    """Write the page of a finished suite from its results; ``seconds`` a value by mechanism."""
    sweep = Sweep(folder)
    parts = [f"<h1>{escape(suite.specification.name)}</h1>"]
    if suite.about:
        parts.append(f"<p>{escape(suite.about)}</p>")
    if suite.unit:
        parts.append(f"<p>Unit of privacy: <b>{suite.unit}</b>. Epsilon protects {UNITS[suite.unit]}.</p>")
    parts.append(_facts(sweep))
    if suite.claims:
        parts += ["<h2>Does it agree with the paper?</h2>", _verdicts(suite, sweep.rows)]
        for path in draw(folder, folder / FIGURES, formats=("png",)):
            parts.append(_image(path, path.stem.replace("_", " ")))
    else:
        scores = Scores(sweep)
        parts += ["<h2>Which mechanism?</h2>", _ranking(sweep, scores, seconds)]
        for question, path in draw_scores(scores, seconds, set(_ours(sweep)), folder / FIGURES):
            parts += [f"<h2>{escape(question)}</h2>", _image(path, question)]
        parts += ["<h2>Where fastdp's own methods lose</h2>", _lost(sweep, scores)]
    parts += ["<h2>Mechanisms</h2>", _mechanisms(sweep), "<h2>Streams</h2>", _streams(sweep, suite.tuned)]
    parts += ["<h2>Made by</h2>", _versions(folder, sweep.manifest)]
    return _written(folder, suite.specification.name, parts)


def write_index(folder: Path, title: str, suites: Sequence[Suite]) -> Path:
    """Write the page of several suites: a line for each, and every verdict."""
    rows = [
        [f'<a href="{each.name}/{PAGE}">{escape(each.specification.name)}</a>', escape(each.about)] for each in suites
    ]
    parts = [f"<h1>{escape(title)}</h1>", _table(["suite", "subject"], rows, raw=True)]
    found = [
        [each.specification.name, *as_row(decide(claim, Sweep(folder / each.name).rows))]
        for each in suites
        for claim in each.claims
    ]
    if found:
        parts += ["<h2>Verdicts</h2>", _table(["figure", *_VERDICT], found, texts=3)]
    return _written(folder, title, parts)


def write_archive(folder: Path) -> Path:
    """Zip results, manifests, pages and pictures, with their digests: equal contents give equal bytes."""
    folder = folder.resolve()
    target = folder.with_name(f"{folder.name}.zip")
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    sums = "".join(f"{_digest(path)}  {path.relative_to(folder).as_posix()}\n" for path in files)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in [("SHA256SUMS", sums.encode())] + [
            (path.relative_to(folder).as_posix(), path.read_bytes()) for path in files
        ]:
            archive.writestr(zipfile.ZipInfo(f"{folder.name}/{name}", (1980, 1, 1, 0, 0, 0)), content)
    return target


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _written(folder: Path, title: str, parts: Iterable[str]) -> Path:
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
    text = f'<!doctype html><html lang="en"><head>{head}<style>{_STYLE}</style></head><body>'
    (folder / PAGE).write_text(text + "\n".join(parts) + "</body></html>\n", encoding="utf-8")
    return folder / PAGE


def _table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    caption: str = "",
    ours: Iterable[str] = (),
    texts: int = 1,
    raw: bool = False,
) -> str:
    """A table whose first columns are texts; rows that begin with one of ``ours`` stand out."""
    own, shown = set(ours), str if raw else (lambda each: escape(_cell(each)))
    kinds = [' class="text"' if 0 < k < texts or raw else "" for k in range(len(columns))]
    head = "".join(f"<th{kind}>{escape(name)}</th>" for kind, name in zip(kinds, columns, strict=True))
    lines = []
    for row in rows:
        cells = "".join(f"<td{kind}>{shown(each)}</td>" for kind, each in zip(kinds, row, strict=True))
        lines.append(f"<tr{' class=ours' if row[0] in own else ''}>{cells}</tr>")
    told = f'<p class="note">{escape(caption)}</p>' if caption else ""
    body = f"<thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody>"
    return f'{told}<div class="wide"><table>{body}</table></div>'


def _cell(value: object) -> str:
    if isinstance(value, float):
        return "-" if math.isnan(value) else f"{value:,.0f}" if abs(value) >= 1000.0 else f"{value:.3g}"
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def _image(path: Path, told: str) -> str:
    return f'<div class="wide"><img src="{FIGURES}/{path.name}" alt="{escape(told)}"></div>'


def _facts(sweep: Sweep) -> str:
    table = sweep.manifest["specification"]
    counts = {"mechanisms": len({each["name"] for each in table["mechanisms"]}), "streams": len(table["datasets"])}
    counts |= {"budgets": sweep.rows["epsilon"].nunique(), "seeds": table["repetitions"]}
    said = ", ".join(f"{number} {name}" for name, number in counts.items())
    failed = sweep.failed
    lost = f" {len(failed):,} cells failed, the first: {escape(failed.iloc[0])}" if len(failed) else ""
    silent = "Warnings of low accuracy (short hold-outs) are not shown; the errors include their effect."
    return f"<p>{said}; {sweep.manifest['cells']:,} runs.{lost} {silent}</p>"


_VERDICT = ("statement", "rule", "verdict", "cells", "least / middle / largest ratio", "repetitions")


def _verdicts(suite: Suite, rows: DataFrame) -> str:
    return _table(_VERDICT, [as_row(decide(claim, rows)) for claim in suite.claims], texts=2)


def _ours(sweep: Sweep) -> list[str]:
    """Names of fastdp's own methods; baselines and rivals are none."""
    every = sweep.manifest["specification"]["mechanisms"]
    return [each["name"] for each in every if each["system"].partition(",")[0] in OURS]


def _ranking(sweep: Sweep, scores: Scores, seconds: Json) -> str:
    by_kind, near = scores.by("kind"), (scores.ratios <= NEAR).mean()
    columns = ["mechanism", "all", *scores.kinds, "lowest in", "breaks its claim"]
    systems = {each["name"]: each["system"] for each in sweep.manifest["specification"]["mechanisms"]}
    rows = []
    for name, whole in scores.overall.items():
        row = [name, whole, *(by_kind.loc[name, kind] for kind in scores.kinds), f"{near[name]:.0%}"]
        rows.append([*row, "yes" if (each := registered().get(systems[name])) and each.breaks else ""])
    if scores.coverage is not None:
        columns.append("coverage of 95 % intervals")
        rows = [[*row, scores.coverage.get(row[0], math.nan)] for row in rows]
    columns.append("time a value, us")
    rows = [[*row, 1e6 * seconds.get(row[0], math.nan)] for row in rows]
    what = "root mean squared errors" if scores.metric == "mse" else "relative errors"
    said = (
        f"{what.capitalize()} over repetitions, as multiples of the lowest one for the same stream, budget and class "
        f"of queries; geometric means. Lowest in: part of these cells within {NEAR - 1:.0%} of the lowest. "
        "Bold: fastdp's own."
    )
    return _table(columns, rows, caption=said, ours=_ours(sweep))


def _lost(sweep: Sweep, scores: Scores) -> str:
    """Cells in which a rival's error is lower than that of every method of ours, the worst first."""
    own = [name for name in scores.errors if name in _ours(sweep)]
    others = scores.errors.drop(columns=own)
    if not own or others.empty:
        return "<p>There is nothing to compare.</p>"
    ratio = (scores.errors[own].min(axis=1) / others.min(axis=1)).sort_values(ascending=False)
    lost = ratio[ratio > 1.0]
    rows = [
        [data_set, epsilon, kind, others.loc[at].idxmin(), scores.errors.loc[at, own].idxmin(), lost[at]]
        for at in lost.index[:MAX_LOST]
        for data_set, epsilon, kind in [at]
    ]
    said = f"{len(lost)} of {len(ratio)} cells; the {len(rows)} in which most is lost."
    columns = ["stream", "epsilon", "queries", "lowest", "fastdp's lowest", "times its error"]
    return _table(columns, rows, caption=said)


def _mechanisms(sweep: Sweep) -> str:
    known = registered()
    rows = []
    for each in sweep.manifest["specification"]["mechanisms"]:
        told = known.get(each["system"])
        source = told.source if told else f"fastdp's {each['system']}"
        given = ", ".join(f"{key} = {value}" for key, value in each["parameters"].items())
        rows.append([each["name"], given, source, (told and told.breaks) or ""])
    columns = ["mechanism", "parameters", "source", "breaks its own claim"]
    return _table(columns, rows, ours=_ours(sweep), texts=4)


def _streams(sweep: Sweep, tuned: Sequence[str]) -> str:
    rows = []
    for each in sweep.manifest["specification"]["datasets"]:
        facts, used = sweep.manifest["data"][each["name"]], "yes" if each["name"] in tuned else "no"
        size, made = facts.get("values", facts.get("events")), each["kind"] == "generator"
        source = "synthetic" if made else each["source"]
        rows.append([each["name"], source, size, facts["sha256"], *([used] if tuned else [])])
    columns = ["stream", "source", "values or events", "sha256"]
    if not tuned:
        return _table(columns, rows)
    said = "Tuned on: the stream, or another draw of its generator, served to choose constants of fastdp."
    return _table([*columns, "tuned on"], rows, caption=said)


def _versions(folder: Path, manifest: Json) -> str:
    rows = [[name, number] for name, number in manifest["versions"].items()]
    rows += [["machine", f"{manifest['machine']['platform']}, {manifest['machine']['cpus']} processors"]]
    rows += [["seconds", sum(each["seconds"] or 0.0 for each in manifest["sessions"])]]
    rows += [[name, _digest(folder / name)] for name in (RESULTS,)]
    files = ", ".join(f'<a href="{name}">{name}</a>' for name in (RESULTS, MANIFEST))
    return _table(["", ""], rows) + f"<p>Files: {files}. Equal versions give equal bytes of {RESULTS}.</p>"
