"""The suites of ``fastdp bench``: each TOML file here is a specification of a sweep, with a few keys of its own.

A suite is a file, or all files whose names begin with the suite's name (``tops_figure_3``, ...).  Keys besides those
of a specification:

* ``unit``: what epsilon protects (:data:`fastdp_lab.mechanism.UNITS`);
* ``quick``: keys of the specification that ``--quick`` replaces;
* ``about``: the subject; ``tuned``: data sets that served to tune constants of fastdp;
* ``[[claims]]``: statements of a paper and the rule that decides each (:class:`fastdp_lab.sweeps.claims.Claim`);
* ``optional = true`` in ``[[datasets]]``: left out unless ``--data`` has its file, or is given and it was downloaded.

With ``--data`` the stream of a data set's ``real`` takes its place where the file is there.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastdp import validation
from fastdp.errors import DataError, FastDPError, ParameterError, StateError
from fastdp.kinds import Json
from fastdp_lab.datasets.catalogue import CATALOGUE, path_of
from fastdp_lab.mechanism import UNITS
from fastdp_lab.sweeps import points
from fastdp_lab.sweeps.claims import BY, LEVELS, Claim, named
from fastdp_lab.sweeps.specification import Specification, from_table, read_toml
from fastdp_lab.sweeps.study import check_keys, placed, read, source_of, tables, text

HERE = Path(__file__).parent
_OWN = ("unit", "quick", "claims", "about", "tuned")
#: Keys of a synthetic stream that a real one does not have.
_SYNTHETIC = ("name", "generator", "stream", "n", "order", "seed")


@dataclass(frozen=True)
class Suite:
    """One specification with what its page says.

    Attributes
    ----------
    name : str
        Of the file.
    specification : Specification
        What is run.
    unit : str or None
        What epsilon protects, where it is one thing.
    claims : tuple of Claim
        Statements that the results decide.
    about : str
        The subject, in a sentence or two.
    tuned : tuple of str
        Data sets that served to tune constants of fastdp; the page has no column for it if there are none.
    """

    name: str
    specification: Specification
    unit: str | None = None
    claims: tuple[Claim, ...] = field(default=())
    about: str = ""
    tuned: tuple[str, ...] = ()


def names() -> dict[str, str]:
    """Every suite by name, with its title; files with a common first word are one suite too."""
    titles = {path.stem: tomllib.loads(path.read_text("utf-8"))["name"] for path in sorted(HERE.glob("*.toml"))}
    words: dict[str, list[str]] = {}
    for name in titles:
        words.setdefault(name.partition("_")[0], []).append(name)
    together = {word: f"the {len(each)} below" for word, each in words.items() if word not in titles}
    return dict(sorted({**titles, **together}.items()))


def of_name(name: str, *, data: Path | None = None, quick: bool = False) -> list[Suite]:
    """The suites of a name, ParameterError if there is none.

    Parameters
    ----------
    name : str
        Of a file here, or its first word.
    data : Path, optional
        A folder with files of real streams.
    quick : bool
        Fewer repetitions and budgets, to see the shape.
    """
    validation.choice("suite", name, tuple(names()))
    paths = [HERE / f"{name}.toml"]
    if not paths[0].exists():
        paths = sorted(HERE.glob(f"{name}_*.toml"))
    return [from_file(path, data=data, quick=quick) for path in paths]


def from_file(path: Path, *, data: Path | None = None, quick: bool = False) -> Suite:
    """A suite, or any specification, from its file; errors name the file and the key."""
    try:
        table = read_toml(path)
        own = {key: table.pop(key) for key in _OWN if key in table}
        claims = tuple(read(Claim, each, place) for place, each in (tables(own, "claims") if "claims" in own else ()))
        if quick:
            check_keys(own.get("quick", {}), "quick", ("repetitions", "epsilons"))
            table |= own.get("quick", {"repetitions": 2})
        named_there = _names(table.get("datasets"))
        # Other errors of this key are found below.
        if isinstance(table.get("datasets"), list) and table["datasets"]:
            table["datasets"] = list(_present(table["datasets"], data))
            if not table["datasets"]:
                raise DataError("datasets: none of their files is there; expected --data, a folder with one of them")
        specification = from_table(table)
        _check_own(own, claims, specification, named_there)
        told = own.get("unit"), claims, own.get("about", ""), tuple(own.get("tuned", ()))
        return Suite(path.stem, specification, *told)
    except FastDPError as error:
        raise type(error)(f"{path}: {error}") from error


def _names(data_sets: Any) -> list[str]:
    """Names of data sets, there or not, and of real ones."""
    each = [table for table in data_sets if isinstance(table, dict)] if isinstance(data_sets, list) else []
    each += [table["real"] for table in each if isinstance(table.get("real"), dict)]
    return [table["name"] for table in each if isinstance(table.get("name"), str)]


def _check_own(own: Json, claims: tuple[Claim, ...], specification: Specification, data_sets: list[str]) -> None:
    """Before anything runs: what a page needs only at its end."""
    if "unit" in own:
        validation.choice("unit", own["unit"], tuple(UNITS))
    if "about" in own:
        text("about", own["about"])
    if not isinstance(tuned := own.get("tuned", []), list):
        raise ParameterError(f"tuned = {validation.shown(tuned)}: expected a list of names of data sets")
    for k, each in enumerate(tuned):
        text(f"tuned[{k}]", each)
    columns = specification.study.columns(specification.metrics)
    known: dict[str, tuple[Any, ...]] = {
        each: tuple(one.name for one in getattr(specification, f"{each}s"))
        for each in ("mechanism", "dataset", "workload")
    }
    known["epsilon"] = tuple(dict.fromkeys(epsilon for _, epsilon in specification.pairs()))
    known["dataset"] = tuple(dict.fromkeys([*known["dataset"], *data_sets]))
    groups = [each.groups for each in specification.workloads]
    if None not in groups:
        known["group"] = tuple(dict.fromkeys(each for some in groups for each in some))
    for k, claim in enumerate(claims):
        with placed(f"claims[{k}]"):
            validation.choice("by", claim.by, BY if specification.study is points else LEVELS)
            validation.choice("metric", claim.metric, (*columns, "threshold"))
            for side in ("better", "worse"):
                if getattr(claim, side) == ():
                    raise ParameterError(f"{side} = []: expected a name, or a list that is not empty")
                if claim.by in known and getattr(claim, side) is not None:
                    named(claim, side, known[claim.by], strict=True)
            # A choice is a text; numbers are compared first.
            if claim.better_epsilon is not None and claim.better_epsilon not in known["epsilon"]:
                validation.choice("better_epsilon", claim.better_epsilon, known["epsilon"])
            for level, accepted in known.items():
                for j, name in enumerate(getattr(claim, f"{level}s")):
                    # A data set that is not there may have lists, which are not expanded.
                    absent = level == "dataset" and name.partition(", ")[0] in data_sets
                    if name not in accepted and not absent:
                        validation.choice(f"{level}s[{j}]", name, accepted)


def _present(data_sets: list[Any], folder: Path | None) -> Iterator[Json]:
    """The tables of data sets whose files are there, real streams in place of synthetic ones."""
    for k, table in enumerate(data_sets):
        if not isinstance(table, dict):
            yield table
            continue
        each: dict[str, Any] = dict(table)
        optional, real = each.pop("optional", False), each.pop("real", None)
        if optional and not _is_there(each, f"datasets[{k}]", folder):
            continue
        if real is not None and _is_there(real, f"datasets[{k}].real", folder):
            each = {key: value for key, value in each.items() if key not in _SYNTHETIC} | real
        yield each


def _is_there(table: Json, place: str, folder: Path | None) -> bool:
    check_keys(table, place, None)
    kind, source = source_of(table, place, {"download": tuple(CATALOGUE)})
    if kind == "generator":
        raise ParameterError(f"{place}.generator = {validation.shown(source)}: expected file or download")
    if folder is None or kind == "file":
        return folder is not None and (folder / source).is_file()
    # Without pooch nothing was downloaded.
    with suppress(StateError):
        return path_of(source).is_file()
    return False
