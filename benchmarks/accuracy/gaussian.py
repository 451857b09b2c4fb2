"""Prefix sums under (epsilon, delta) beside jax_privacy, dpcrpy and OpenDP, units of many rows, and the conversion.

Each mechanism runs in a process of its own (:mod:`benchmarks.accuracy.gaussian_prefix`).  Peers that are not
installed are left out and named: put ``jax_privacy``, ``dpcrpy`` and ``dp_accounting`` on the path.  ``--parts
persons`` measures units of many rows on real tables (:mod:`benchmarks.accuracy.gaussian_persons`), ``--parts
conversion`` compares the conversion of rho with dp-accounting's.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from json import dumps, loads
from typing import Annotated, Any

from benchmarks import ROOT
from benchmarks.accuracy.gaussian_persons import persons
from benchmarks.accuracy.gaussian_prefix import mechanisms
from benchmarks.shared import DATA, Data, table
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
        rows.append(loads(done.stdout.splitlines()[-1]))
    return rows


def show_prefixes(rows: list[dict[str, Any]], length: int) -> None:
    columns = ("mechanism", "guarantee", "MSE", "values/s", "between two values", "rise, MB")
    names = ("name", "guarantee", "error", "speed", "memory")
    cells = [[*(row[name] for name in names), row["rise"] / 1e6] for row in rows]
    table(f"Prefix sums, T = {length:,}, in theta^2", columns, cells)


def show_persons(rows: list[dict[str, Any]]) -> None:
    kinds, errors = ("laplace", "gaussian"), ("planned", "noise", "error", "revised")
    columns = ["unit", "k", "in a window", "delta", "dropped"]
    columns += [f"{noise}: {what}" for noise in kinds for what in errors]
    cells = [
        [
            *(row["unit"], row["k"], row["per window"] or row["k"], f"{row['delta']:g}", f"{row['dropped']:.1%}"),
            *(row[noise][what] for noise in kinds for what in errors),
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


def run(
    *,
    parts: Annotated[Sequence[str], "tables", ("prefix", "persons", "conversion")] = ("prefix",),
    length: Annotated[int, "T, a power of two"] = 2**15,
    delta: float = 1e-6,
    only: Annotated[str, "mechanisms with this in their name"] = "",
    runs: Annotated[int, "releases of each real table"] = 20,
    json: Annotated[bool, f"write the numbers into {RESULTS.name}"] = False,
    data: Data = DATA,
) -> None:
    facts: dict[str, Any] = loads(RESULTS.read_text()) if json else {}
    name = f"prefix sums, T = {length}, delta = {delta:g}"
    if "prefix" in parts:
        facts[name] = prefixes(length, delta, only)
        show_prefixes(facts[name], length)
    if "persons" in parts:
        facts["persons"] = persons(data, runs)
        show_persons(facts["persons"])
    if "conversion" in parts:
        facts["conversion"] = conversion()
        rows = [[f"{cell:.6g}" for cell in row.values()] for row in facts["conversion"]]
        table("Epsilon that rho gives at delta", tuple(facts["conversion"][0]), rows)
    if json:
        RESULTS.write_text(dumps(facts, indent=1) + "\n")
