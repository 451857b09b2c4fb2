"""Every class and function at the top level has an example, and all examples in docstrings do what they say."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil

import pytest

import fastdp

NEEDS = {"pd": "pandas", "dp": "opendp", "pl": "polars"}


def test_every_name_at_the_top_level_has_an_example() -> None:
    named = {name: getattr(fastdp, name) for name in fastdp.__all__}
    lacking = [
        name
        for name, value in named.items()
        if (inspect.isclass(value) or inspect.isfunction(value)) and ">>>" not in (value.__doc__ or "")
    ]
    assert not lacking, lacking


def modules() -> list[str]:
    found = [
        "fastdp",
        *(m.name for m in pkgutil.walk_packages(fastdp.__path__, "fastdp.") if "__main__" not in m.name),
    ]
    return sorted(name for name in found if ">>>" in inspect.getsource(importlib.import_module(name)))


@pytest.mark.parametrize("name", modules())
def test_examples_run(name: str, tmp_path, monkeypatch) -> None:
    source = inspect.getsource(module := importlib.import_module(name))
    for alias, package in NEEDS.items():
        if f">>> import {package}" in source or f"as {alias}" in source:
            pytest.importorskip(package, reason=f"the example needs {package}")
    monkeypatch.chdir(tmp_path)
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0
