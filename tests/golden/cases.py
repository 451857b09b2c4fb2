"""The table of golden cases: name -> case."""

from __future__ import annotations

import json
import platform
import tempfile
import warnings
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path

import llvmlite.binding

from fastdp.errors import AccuracyWarning
from tests.golden import counters, data, kept, local, points, streams, tables
from tests.golden.parts import Golden

DIGESTS = Path(__file__).with_name("digests.json")
CASES: dict[str, Golden] = {}
for _name, _case in chain.from_iterable(
    part.CASES.items() for part in (streams, counters, local, points, kept, data, tables)
):
    assert _name not in CASES, _name
    CASES[_name] = _case


def environment() -> dict[str, str]:
    """Versions that outputs of cases that are not portable depend on."""

    def installed(package: str) -> str:
        try:
            return version(package)
        except PackageNotFoundError:
            return "none"

    packages = {
        package: installed(package) for package in ("numpy", "numba", "llvmlite", "scipy", "shapely", "pyproj")
    }
    processor = f"{platform.machine()} {llvmlite.binding.get_host_cpu_name()}"
    return {
        "processor": processor,
        "libc": " ".join(platform.libc_ver()),
        **{package: installed(package) for package in packages},
    }


def recorded() -> tuple[dict[str, str], dict[str, str]]:
    """The environment and the digests of the file."""
    content = json.loads(DIGESTS.read_text()) if DIGESTS.exists() else {"environment": {}, "digests": {}}
    return content["environment"], content["digests"]


def digest(name: str) -> str:
    """The digest of a case's outputs now."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        # Short hold-outs are meant here.
        warnings.simplefilter("ignore", AccuracyWarning)
        return CASES[name].digest(Path(folder))
