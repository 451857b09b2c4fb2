"""Every class and function at the top level has an example, and all examples in docstrings do what they say.

A public method has a docstring, one of a base, or one of another class of its folder: of a protocol, or a sibling.
"""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

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


def methods(kind: type) -> list[str]:
    """Public methods and properties that a class defines itself."""
    kinds = (classmethod, staticmethod, property)
    return [
        name
        for name, value in vars(kind).items()
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, kinds))
    ]


def test_every_public_method_is_documented() -> None:
    owners: dict[str, list[type]] = {}
    for name in packages():
        for kind in vars(importlib.import_module(name)).values():
            if inspect.isclass(kind) and kind.__module__ == name and not kind.__name__.startswith("_"):
                owners.setdefault(name.rpartition(".")[0], []).append(kind)
    for folder, kinds in owners.items():
        documented = {name for kind in kinds for name in methods(kind) if inspect.getdoc(vars(kind)[name])}
        lacking = [
            f"{folder}.{kind.__name__}.{name}"
            for kind in kinds
            for name in methods(kind)
            if name not in documented and not inspect.getdoc(getattr(kind, name))
        ]
        assert not lacking, lacking


def test_no_docstring_begins_with_a_relative_clause() -> None:
    found = []
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for folder in ("fastdp", "kernels", "lab", "tests", "benchmarks", "examples"):
        for path in (Path(__file__).parents[2] / folder).rglob("*.py"):
            nodes = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds))
            texts = (ast.get_docstring(node) or "" for node in nodes)
            found += [f"{path}: {text}" for text in texts if re.match(r"(What|Where|Which|Whether)\b", text)]
    assert not found, found


def packages() -> list[str]:
    found = (m.name for m in pkgutil.walk_packages(fastdp.__path__, "fastdp.") if "__main__" not in m.name)
    return ["fastdp", *found]


def modules() -> list[str]:
    return sorted(name for name in packages() if ">>>" in inspect.getsource(importlib.import_module(name)))


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
