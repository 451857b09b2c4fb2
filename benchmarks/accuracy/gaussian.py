"""Prefix sums under (epsilon, delta) beside jax_privacy, dpcrpy and OpenDP, units of many rows, and the conversion.

Each mechanism runs in a process of its own (:mod:`benchmarks.accuracy.gaussian_prefix`).  Peers that are not
installed are left out and named: put ``jax_privacy``, ``dpcrpy`` and ``dp_accounting`` on the path.  ``--parts
persons`` measures units of many rows on real tables (:mod:`benchmarks.accuracy.gaussian_persons`), ``--parts
conversion`` compares the conversion of rho with dp-accounting's.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import ROOT
from benchmarks.accuracy.gaussian_persons import persons
from benchmarks.accuracy.gaussian_prefix import mechanisms
from benchmarks.shared import add_data_option, table
from fastdp.guarantee import zcdp_epsilon

RESULTS = ROOT / "benchmarks" / "results" / "gaussian.json"
#: Seconds that one mechanism may take.
LIMIT = 300
#: Of the conversion: rhos and deltas.
RHOS = (1e-6, 1e-4, 1e-3, 0.005, 0.02, 0.05, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
DELTAS = (1e-3, 1e-5, 1e-6, 1e-7, 1e-9, 1e-12)


def prefixes(length: int, delta: float, only: str) -> list[dict[str, Any]]:
    """A row for each mechanism that is installed, or that has ``only`` in its name."""
    rows = []
    for name in mechanisms(delta):
        if only not in name:
            continue
        package = name.split()[0].rstrip(",")
        if importlib.util.find_spec(package) is None:
            print(f"left out: {name} (no {package})")
            continue
        script = [sys.executable, "-m", "benchmarks.accuracy.gaussian_prefix", name, str(length), str(delta)]
        try:
            done = subprocess.run(script, capture_output=True, text=True, check=False, timeout=LIMIT)
        except subprocess.TimeoutExpired:
            print(f"left out: {name} (not done after {LIMIT} s)", flush=True)
            continue
        if done.returncode:
            print(f"left out: {name} ({done.stderr.strip().splitlines()[-1]})", flush=True)
            continue
        rows.append(json.loads(done.stdout.splitlines()[-1]))
    return rows


def show_prefixes(rows: list[dict[str, Any]], length: int) -> None:
    columns = ("mechanism", "guarantee", "MSE", "values/s", "between two values", "rise, MB")
    cells = [
        (
            *(row["name"], row["guarantee"], f"{row['error']:,.1f}", f"{row['speed']:,.0f}", row["memory"]),
            f"{row['rise'] / 1e6:,.1f}",
        )
        for row in rows
    ]
    table(f"Prefix sums, T = {length:,}, in theta^2", columns, cells)


def show_persons(rows: list[dict[str, Any]]) -> None:
    columns = ["unit", "k", "in a window", "delta", "dropped"]
    kinds = ("laplace", "gaussian")
    columns += [f"{noise}: {what}" for noise in kinds for what in ("planned", "noise", "error", "revised")]
    cells = [
        [
            *(row["unit"], str(row["k"]), str(row["per window"] or row["k"]), f"{row['delta']:g}"),
            f"{100 * row['dropped']:.1f} %",
            *(f"{row[noise][what]:.1f}" for noise in kinds for what in row[noise]),
            *(row["better"], row["plan says"]),
        ]
        for row in rows
    ]
    title = "A window's total at epsilon = 1: root mean square errors, in clips"
    table(title, [*columns, "better", "plan says"], cells)


def conversion() -> list[dict[str, float]]:
    """Epsilon of (rho, delta) here and by dp-accounting's Renyi accountant at its default orders and at many."""
    import dp_accounting
    from dp_accounting import rdp

    def accountant(rho: float, orders: Any) -> Any:
        made = rdp.RdpAccountant(orders)
        return made.compose(dp_accounting.GaussianDpEvent((0.5 / rho) ** 0.5))

    dense = [1.0 + 1.02**i / 500.0 for i in range(1200)]
    return [
        {
            "rho": rho,
            "delta": delta,
            "fastdp": zcdp_epsilon(rho, delta),
            "dp-accounting": accountant(rho, None).get_epsilon(delta),
            "at 1,200 orders": accountant(rho, dense).get_epsilon(delta),
        }
        for rho in RHOS
        for delta in DELTAS
    ]


def show_conversion(rows: list[dict[str, float]]) -> None:
    columns = tuple(rows[0])
    table("Epsilon that rho gives at delta", columns, [[f"{cell:.6g}" for cell in row.values()] for row in rows])


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--parts", nargs="+", choices=("prefix", "persons", "conversion"), default=["prefix"])
    parser.add_argument("--length", type=int, default=2**15, help="T, a power of two (default 2^15)")
    parser.add_argument("--delta", type=float, default=1e-6)
    parser.add_argument("--only", default="", help="mechanisms with this in their name")
    parser.add_argument("--runs", type=int, default=20, help="releases of each real table (default 20)")
    parser.add_argument("--json", type=Path, nargs="?", const=RESULTS, help=f"write the numbers (default {RESULTS})")
    add_data_option(parser)


def run(given: argparse.Namespace) -> None:
    facts: dict[str, Any] = {}
    if given.json is not None and given.json.exists():
        facts = json.loads(given.json.read_text())
    parts: dict[str, tuple[str, Callable[[], Any], Callable[[Any], None]]] = {
        "prefix": (
            f"prefix sums, T = {given.length}, delta = {given.delta:g}",
            lambda: prefixes(given.length, given.delta, given.only),
            lambda rows: show_prefixes(rows, given.length),
        ),
        "persons": ("persons", lambda: persons(given.data, given.runs), show_persons),
        "conversion": ("conversion", conversion, show_conversion),
    }
    for part in given.parts:
        name, found, show = parts[part]
        facts[name] = found()
        show(facts[name])
    if given.json is not None:
        given.json.write_text(json.dumps(facts, indent=1) + "\n")
