"""Used by every group: the papers' sizes, paths of real streams, the heading of a run, and tables in Markdown."""

import argparse
import ast
import importlib
import importlib.metadata
import inspect
import os
import platform
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import numpy as np

from benchmarks import ROOT
from fastdp.kinds import Floats

# The sizes of the papers' experiments.
BOUND = 1657  # BMS-POS
WIDE_BOUND = 41_270  # Kosarak
EPSILON = 0.05
FAN_OUT = 16
HOLDOUT = 65_536
PUBLISHED = 2**20
MAX_RANGE = 2**20
QUERIES = 200
#: A threshold as NM-E chooses it on BMS-POS.
THETA = 58.0

#: Beside the project, never inside it.
DATA = ROOT.parent / "shared" / "data"
REFERENCE = DATA.parent / "reference"
#: Options of several commands (:func:`add_options`).
Data = Annotated[Path, "folder of real streams"]
Runs = Annotated[int, "runs of each kind"]


@lru_cache(maxsize=4)
def item_counts(n: int, bound: int = BOUND) -> Floats:
    """Whole numbers from 2 to the bound with about the quantiles of BMS-POS (85 %: 13, 95 %: 21, 99.5 %: 40)."""
    generator = np.random.default_rng(20)
    return np.clip(np.rint(generator.lognormal(np.log(6.0), 0.75, n)), 2.0, float(bound))


def prefix_sums(values: Any) -> Floats:
    """Sums before each position: float64[n + 1]."""
    return np.concatenate([np.zeros(1), np.cumsum(values)])


def geometric(values: Any, axis: int | None = None) -> Any:
    """Geometric mean of the entries that are no NaN."""
    return np.exp(np.nanmean(np.log(np.asarray(values, float)), axis=axis))


def cpu_model() -> str:
    """The processor's name as the system reports it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def heading(group: str, arguments: Sequence[str]) -> str:
    """Print where and how the numbers are made; returns the command."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("numpy", "numba", "opendp"))
    command = f"python -m benchmarks {group} {shlex.join(arguments)}".rstrip()
    print(f"Machine: {cpu_model()}, {os.cpu_count()} cores, {platform.system()}; ", end="")
    print(f"Python {platform.python_version()}, {packages}\nCommand: {command}", flush=True)
    return command


def cell(value: object) -> str:
    """A text as it is, a number to three digits, "-" for none."""
    if isinstance(value, float | np.floating):
        return f"{value:,.0f}" if 1000.0 <= abs(value) < 1e9 else f"{value:.3g}"
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return f"{value:,}"
    return "-" if value is None else str(value)


def markdown(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table for a page."""
    lines = [columns, *([cell(each) for each in row] for row in rows)]
    first, *others = ("| " + " | ".join(line) + " |" for line in lines)
    return "\n".join([first, "|" + "---|" * len(columns), *others])


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a Markdown table with aligned columns."""
    cells = [list(columns), *([cell(each) for each in row] for row in rows)]
    widths = [max(len(row[k]) for row in cells) for k in range(len(columns))]
    cells.insert(1, ["-" * width for width in widths])
    lines = (" | ".join(each.ljust(width) for each, width in zip(row, widths, strict=True)) for row in cells)
    print(f"\n{title}\n\n" + "\n".join(f"| {line} |" for line in lines) + "\n", flush=True)


def add_options(parser: argparse.ArgumentParser, function: Callable[..., object]) -> None:
    """An option for each keyword of `function`, and its other parameters as positional arguments.

    ``Annotated[TYPE, HELP]`` gives the help, ``Annotated[TYPE, HELP, CHOICES]`` the choices too.
    """
    hints = get_type_hints(function, include_extras=True)
    for name, each in inspect.signature(function).parameters.items():
        kind, told, *choices = get_args(hints[name]) if get_origin(hints[name]) is Annotated else (hints[name], "")
        if isinstance(kind, UnionType):
            kind = get_args(kind)[0]
        if several := get_origin(kind) is Sequence:
            (kind,) = get_args(kind)
        required, named = each.default is each.empty, each.kind is each.KEYWORD_ONLY
        default = None if required else each.default
        flags = ("-o",) * (name == "output") + (f"--{name.replace('_', '-')}" if named else name,)
        if kind is bool:
            parser.add_argument(*flags, action="store_true", help=told)
            continue
        nargs = ("+" if named or required else "*") if several else None if named or required else "?"
        shown = told if default in (None, "") or several else f"{told} (default %(default)s)"
        given: Any = {"type": kind, "default": default, "nargs": nargs, "choices": choices[0] if choices else None}
        parser.add_argument(*flags, help=shown, metavar=None if choices else name.upper(), **given)


def call(group: str, function: Callable[..., Any], given: list[str] | None = None) -> int:
    """Call the function with the options of a group's command line; the exit code."""
    arguments = sys.argv[1:] if given is None else given
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks {group}", description=inspect.getdoc(function))
    add_options(parser, function)
    options = vars(parser.parse_args(arguments))
    heading(group, arguments)
    return int(function(**options) or 0)


def parts(group: str) -> dict[str, str]:
    """First lines of the docstrings of a group's modules that have ``run`` or ``groups``; none is imported."""
    texts = {path: path.read_text() for path in sorted((ROOT / "benchmarks" / group).glob("*.py"))}
    return {
        path.stem: (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
        for path, text in texts.items()
        if re.search(r"^def (run|groups)\(", text, re.MULTILINE)
    }


def run_part(group: str, arguments: list[str] | None = None) -> int:
    """Call ``run`` of one module of a group with the options that are its parameters; only that one is imported.

    In the group speed, modules of ``groups`` of tasks are timed, and ``--json FILE`` keeps numbers in a section.
    """
    given = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks {group}")
    commands = parser.add_subparsers(dest="part", required=True)
    run: Callable[..., Any] = print
    for name, summary in parts(group).items():
        command = commands.add_parser(name, help=summary, description=summary)
        if name in given[:1]:
            module = importlib.import_module(f"benchmarks.{group}.{name}")
            measure = importlib.import_module("benchmarks.speed.measure") if group == "speed" else None
            run = module.run if hasattr(module, "run") else measure.timed(module)
            add_options(command, run)
            if measure and name != "summary":
                command.add_argument("--json", type=Path, metavar="FILE", help="the file to put the numbers into")
    options = vars(parser.parse_args(given))
    name, path = options.pop("part"), options.pop("json", None)
    said = heading(group, given) if name != "summary" else ""
    code = int(run(**options) or 0)
    if path is not None:
        measure.write(path, name, said)
    return code
