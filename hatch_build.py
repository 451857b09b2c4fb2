"""Compiled kernels in the wheel, for the levels of processors that ``FASTDP_LEVELS`` lists; by default this one's.

``FASTDP_LEVELS="x86-64-v3 x86-64-v4" python -m build --wheel`` makes a wheel for this Python, whose kernels are used
with the version of Numba that compiled them; with ``FASTDP_LEVELS=""`` it has none, and is for all systems.  Kernels
call nothing but Numba's own helpers and libm, which Numba finds when it loads them: hence the tag of the oldest
systems that Numba itself runs on.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

#: Instructions of a level by the names of /proc/cpuinfo, the highest first (fastdp_kernels/_caching.py has LLVM's).
_V3 = {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"}
LEVELS = {"x86-64-v4": _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}, "x86-64-v3": _V3}
_SYSTEM = ("linux", "x86_64", "glibc")


def check_system(*here: str) -> None:
    """RuntimeError where levels are not of this platform, machine and C library."""
    if here != _SYSTEM:
        raise RuntimeError(f"FASTDP_LEVELS on {' '.join(here)}: expected Linux on x86-64 with glibc, or no levels")


def own_levels(here: tuple[str, ...], cpuinfo: str) -> list[str]:
    """The highest level of a processor, which needs no others; none on another system."""
    flags = set(next((line for line in cpuinfo.splitlines() if line.startswith("flags")), "").split())
    return [level for level, needed in LEVELS.items() if here == _SYSTEM and needed <= flags][:1]


class KernelsHook(BuildHookInterface):
    """Runs ``fastdp compile --level`` in the checkout before the wheel is packed."""

    @property
    def _levels(self) -> list[str]:
        if self.target_name != "wheel":
            return []
        named, cpuinfo = os.environ.get("FASTDP_LEVELS"), Path("/proc/cpuinfo")
        here = (sys.platform, platform.machine(), platform.libc_ver()[0])
        return own_levels(here, cpuinfo.read_text() if cpuinfo.exists() else "") if named is None else named.split()

    def dependencies(self) -> list[str]:
        """The packages that compiling needs."""
        return [*self.metadata.core.dependencies, "narwhals>=2", "pyarrow>=15"] if self._levels else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and add the kernels to the wheel."""
        if not self._levels or version == "editable":
            return
        check_system(sys.platform, platform.machine(), platform.libc_ver()[0])
        root = Path(self.root)
        paths = os.pathsep.join([str(root), str(root / "kernels")])
        try:
            for level in self._levels:
                command = [sys.executable, "-m", "fastdp", "compile", "--level", level]
                subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": paths})  # noqa: S603 - ours
        except BaseException as error:
            self._remove()
            if "FASTDP_LEVELS" in os.environ or not isinstance(error, subprocess.CalledProcessError):
                raise
            # Such as a build without isolation beside no Numba: the first run compiles, as without this default.
            self.app.display_warning("fastdp's kernels could not be compiled here; the wheel has none")
            return
        python = f"cp{sys.version_info.major}{sys.version_info.minor}"
        build_data["pure_python"] = False
        build_data["tag"] = f"{python}-{python}-manylinux_2_17_x86_64"
        build_data["artifacts"].append("/kernels/fastdp_kernels/**/_compiled/*")

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the kernels from the checkout, which would hide that something is compiled."""
        if self._levels:
            self._remove()

    def _remove(self) -> None:
        for folder in list(Path(self.root, "kernels").rglob("_compiled")):
            shutil.rmtree(folder)
