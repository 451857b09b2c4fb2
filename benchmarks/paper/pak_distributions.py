"""Figures 5 and 6 of PAK: tails beside the exponential distribution, and the search for p_max.

light_tails.png (Figure 5): the tail beside that of the exponential distribution with the same quantile.
search.png (Figure 6): r x_p over x_(p^r), by which the paper chooses p_max.

The paper's streams, train trips and a supermarket's bills, are not public.  Bike trips and a wholesaler's orders are
the nearest real ones at hand.  All of this looks at values without noise: public data only.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy.streams import STREAMS
from benchmarks.paper.pak_runs import Stream, synthetic
from benchmarks.paper.pak_tables import P_MAX
from benchmarks.shared import Floats
from fastdp_lab import planning
from fastdp_lab.sweeps.figures import COLOURS, GREY, TRUTH, grid, legend

BIKES, RETAIL = "tables/bike_trips.parquet", "tables/retail_lines.parquet"
#: p of Figure 6, one line each.
SHARES = (0.1, 0.05, 0.01, 0.005)
POINTS = 400
WIDTH, HEIGHT = 3.3, 2.9


def distributions(data: Path | None) -> list[Stream]:
    """The real streams whose files are in the folder; without any, those that Tables I and II suggest."""
    if data is None:
        return synthetic()
    found = [_trips(data / BIKES)] if (data / BIKES).exists() else []
    found += [_orders(data / RETAIL)] if (data / RETAIL).exists() else []
    for name, unit in (("taxi distance", "0.01 mile"), ("smart meter", "Wh"), ("POS", "items")):
        if STREAMS[name].there(data):
            found.append(Stream(name, unit, float(STREAMS[name].bound), STREAMS[name].values(data)))
    return found or synthetic()


def _trips(path: Path) -> Stream:
    import pyarrow.parquet as parquet

    minutes = parquet.read_table(path, columns=["duration_s"])["duration_s"].to_numpy() / 60.0
    return Stream("bike trips", "minutes", 1440.0, np.minimum(minutes, 1440.0))


def _orders(path: Path) -> Stream:
    """Amount of a purchase, in pounds, without returns."""
    import pyarrow.parquet as parquet

    table = parquet.read_table(path, columns=["time", "customer", "amount_pence"])
    customers, amounts = table["customer"].to_numpy(), table["amount_pence"].to_numpy()
    times = table["time"].to_numpy().astype("datetime64[s]").astype(np.int64)
    sold = ~np.isnan(customers.astype(np.float64)) & (amounts > 0)
    pairs = np.stack([times[sold], customers[sold].astype(np.int64)])
    _, which = np.unique(pairs, axis=1, return_inverse=True)
    pounds = np.bincount(which.reshape(-1), amounts[sold]) / 100.0
    return Stream("wholesale orders", "pounds", 30_000.0, np.minimum(pounds, 30_000.0))


def draw_light_tails(streams: list[Stream]) -> Any:
    """Figure 5: 1 - F beyond the quantile at p = 0.005, beside the exponential one, on a logarithmic axis."""
    figure, axes = _grid(
        streams, f"Figure 5 of PAK: the tail beyond p = {P_MAX:g}, and the exponential distribution's"
    )
    handles: dict[str, Any] = {}
    for ax, stream in zip(axes, streams, strict=True):
        verdict = planning.check_light_tail(stream.values, P_MAX)
        end = max(float(np.max(stream.values)), 1.5 * verdict.x_p)
        points = np.linspace(0.0, end, POINTS)
        above = 1.0 - _share_up_to(stream.values, points)
        (handles["values"],) = ax.plot(points, np.where(above > 0.0, above, np.nan), color=COLOURS[1])
        (handles["exponential"],) = ax.plot(points, np.exp(-verdict.gamma * points), color=TRUTH, linestyle="--")
        ax.axvline(verdict.x_p, color=GREY, linewidth=0.8, linestyle=":")
        ax.set(yscale="log", ylim=(0.3 / stream.values.size, 1.5), xlabel=stream.unit)
        ax.set_title(f"{stream.name}: {'light' if verdict.light else 'not light'}-tailed", fontsize=9)
    axes[0].set_ylabel("share of values above x")
    legend(figure, handles)
    return figure


def draw_search(streams: list[Stream]) -> Any:
    """Figure 6: r times the p-quantile over the p^r-quantile; 1 where the tail is exponential."""
    figure, axes = _grid(streams, r"Figure 6 of PAK: $r\,x_p\,/\,x_{p^r}$ against $p^r$ (light-tailed: at least 1)")
    handles: dict[str, Any] = {}
    for ax, stream in zip(axes, streams, strict=True):
        found = planning.search_p_max(stream.values, SHARES)
        for k, (p, error) in enumerate(zip(found.p, found.error, strict=True)):
            (handles[f"p = {p:g}"],) = ax.plot(found.targets, 1.0 + error, color=COLOURS[k], linewidth=1.3)
        ax.axhline(1.0, color=TRUTH, linewidth=0.8)
        ax.set(xscale="log", yscale="log", xlabel="$p^r$")
        _plain_ticks(ax)
        ax.invert_xaxis()
        ax.set_title(f"{stream.name}: $p_{{max}}$ = {found.p_max or 'none'}", fontsize=9)
    axes[0].set_ylabel("ratio")
    legend(figure, handles)
    return figure


def _share_up_to(values: Floats, points: Floats) -> Floats:
    shares: Floats = np.searchsorted(np.sort(values), points, side="right") / values.size
    return shares


def _plain_ticks(ax: Any) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter

    low, high = ax.get_ylim()
    ticks = [x for x in (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 5.0) if low <= x <= high]
    ax.set_yticks(ticks)
    ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())


def _grid(streams: list[Stream], title: str) -> tuple[Any, list[Any]]:
    figure, axes = grid(1, len(streams), title, width=WIDTH, height=HEIGHT, sharex="none")
    return figure, list(axes[0])


#: Figures by their number: the file's name, and what draws it.
FIGURES: dict[int, tuple[str, Callable[[Path | None], Any]]] = {
    5: ("light_tails", lambda data: draw_light_tails(distributions(data))),
    6: ("search", lambda data: draw_search(distributions(data))),
}


def draw(number: int, output: Path, data: Path | None) -> list[Path]:
    """One of these figures, as PNG and SVG."""
    name, make = FIGURES[number]
    figure, paths = make(data), [output / f"{name}.{suffix}" for suffix in ("png", "svg")]
    for path in paths:
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    return paths
