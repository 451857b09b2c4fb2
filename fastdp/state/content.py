"""What the JSON of a state says, and the one error for whatever is wrong with it."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fastdp import validation
from fastdp._version import __version__
from fastdp.errors import StateError
from fastdp.randomness.key import Binding, Key
from fastdp.state import codec

#: A state as JSON (:meth:`fastdp.state.machine.Machine.pack`).
Packed = dict[str, Any]
#: What reading a description or a packed state may raise if it is none.
DAMAGE = (
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
    zlib.error,
)


@contextmanager
def trusting(name: str, writer: object = __version__) -> Iterator[None]:
    """Whatever is wrong within a state that passed its authentication is one clear error.

    ``writer`` is the version that wrote it: another one may have had something that this one has not.
    """
    try:
        yield
    except DAMAGE as error:
        same = writer in (None, __version__)
        shown = validation.shown(writer).strip("'")
        other = "" if same else f" (or needs fastdp {shown}, which wrote it; this is {__version__})"
        raise StateError(f"{name} is damaged{other}: {error}") from error


def content_of(frames: list[bytes], name: str) -> dict[str, Any]:
    """The content of a state, with the records behind it applied."""
    with trusting(name):
        content = json.loads(frames[0])
        if not isinstance(content, dict) or not {"class", "fastdp", "home", "before", "now"} <= set(content):
            raise ValueError("no publisher in it")
        for frame in frames[1:]:
            record = json.loads(frame)
            before = {**content["now"], **record["drawn"]}
            digest = content["digest"] if content["chunk"] is None else content["chunk"]["digest"]
            content |= {"before": before, "now": record["now"], "chunk": record["chunk"], "digest": digest}
            if "log" in content:
                content["log"] += record.get("log", [])
                # What the state before does not have.
                content["fresh"] = len(record.get("log", []))
    return content


def as_text(content: Any) -> bytes:
    """JSON without spaces."""
    return json.dumps(content, separators=(",", ":")).encode()


def key_of(content: dict[str, Any]) -> Key:
    """The key of a state; ValueError, LookupError or TypeError if it is none."""
    noise, member = content["noise"], codec.whole(content["member"])
    if type(noise) is not int or noise != Binding.COMPOSITION:
        raise ValueError(f"noise format {validation.shown(noise)}: expected {int(Binding.COMPOSITION)}")
    secret, family = (bytes.fromhex(content[name]) for name in ("secret", "family"))
    return Key(secret, simulated=content["simulated"], member=member, binding=Binding.COMPOSITION, family=family)
