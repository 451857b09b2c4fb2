"""Every record refuses each value that a parameter's declaration does not accept, by name and without entries."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from typing import Any

import numpy as np
import pytest

import fastdp
from fastdp.errors import ParameterError
from fastdp.record import Choice, Flag, Keyed, Kind, PartOf, Real, Whole, meanings, parameters

COLUMN = [17.25, 18.5]


def records() -> list[type]:
    """The records of all modules of fastdp."""
    found = {}
    for module in pkgutil.walk_packages(fastdp.__path__, "fastdp."):
        if module.name.startswith(("fastdp.engines.", "fastdp.interop.", "fastdp.__main__")):
            continue
        for kind in vars(importlib.import_module(module.name)).values():
            if isinstance(kind, type) and hasattr(kind, "__dataclass_fields__") and parameters(kind):
                found[f"{kind.__module__}.{kind.__qualname__}"] = kind
    return [found[name] for name in sorted(found) if found[name] is not Keyed]


def refused(kind: Kind) -> list[Any]:
    """Values that a declaration does not accept."""
    values: list[Any] = [COLUMN, np.array(COLUMN)]
    if not kind.optional and type(kind) is not Kind:
        values.append(None)
    if isinstance(kind, Real):
        values += ["1", True, 1j, np.nan, np.inf, 10**400]
        values += [end for end in (kind.above, kind.below) if end is not None]
        values += [end - 1.0 for end in (kind.least,) if end is not None]
        values += [2.0 * end for end in (kind.most,) if end]
    if isinstance(kind, Whole):
        values += ["1", True, 1.5, kind.low - 1, *([] if kind.high is None else [kind.high + 1])]
    if isinstance(kind, Flag):
        values += [1, "yes"]
    if isinstance(kind, Choice):
        values += ["none of them", 1]
    if isinstance(kind, PartOf):
        values += [1.0, "text", kind.protocol]
    return values


@pytest.mark.parametrize("made", records(), ids=lambda made: made.__name__)
def test_each_parameter_refuses_what_it_does_not_accept(made: type) -> None:
    for name, kind in parameters(made).items():
        if type(kind) is Kind:
            continue
        for value in refused(kind):
            with pytest.raises(ParameterError) as caught:
                kind.check(name, value)
            message = str(caught.value)
            assert message.startswith(name), message
            assert "expected" in message, message
            assert "17.25" not in message, message


def test_a_constructor_has_the_arguments_of_its_record() -> None:
    signature = inspect.signature(fastdp.PAK)
    assert [*signature.parameters][:4] == ["epsilon", "delta", "bound", "length"]
    assert {"seed", "key"} <= set(signature.parameters)
    assert {*signature.parameters} <= {*meanings(fastdp.PAK)}
