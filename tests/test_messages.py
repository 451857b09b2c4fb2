"""Errors and warnings are short: a message ends up in one line of a log."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import fastdp

MAX_LENGTH = 300
PACKAGE = Path(fastdp.__file__).parent


def length(message: ast.expr) -> int:
    """Characters of a literal, with eight for each value that is shown in it."""
    parts = list(ast.walk(message))
    texts = sum(len(part.value) for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str))
    return texts + 8 * sum(isinstance(part, ast.FormattedValue) for part in parts)


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_messages_are_short(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        call = node.exc if isinstance(node, ast.Raise) else node
        if isinstance(call, ast.Call) and (isinstance(node, ast.Raise) or ast.unparse(call.func) == "warn"):
            for argument in call.args:
                assert length(argument) <= MAX_LENGTH, f"line {call.lineno}"


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_message_spells_a_call(path: Path) -> None:
    """Of a record: :func:`fastdp.errors.argument` writes parameters, as options for the shell."""
    tree = ast.parse(path.read_text())
    prints = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "__repr__"]
    docs = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)]
    left_out = {id(part) for node in (*prints, *docs) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in left_out:
            assert not re.search(r"\b[A-Z][a-z]\w+\([a-z_]+=", node.value), f"line {node.lineno}"
