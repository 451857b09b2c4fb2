"""What a state file says about a publisher, as JSON; and the reading of it.

Parts are saved by name and parameters; only fastdp's own can be named, so loading a file never runs
anything that the file brings along.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdp import perturbers, smoothers, thresholds
from fastdp.errors import StateError
from fastdp.randomness.key import Key

_PARTS: dict[str, Any] = {
    part.__name__: part for part in (thresholds.NoisyMax, thresholds.Fixed, perturbers.Hierarchy, smoothers.Recent)
}


def describe_part(part: Any) -> dict[str, Any] | None:
    """Name and parameters of a threshold, perturber or smoother."""
    if part is None:
        return None
    name = type(part).__name__
    if _PARTS.get(name) is not type(part):
        raise StateError(f"a publisher with a {name} of your own cannot be saved: expected one of {sorted(_PARTS)}")
    return {"name": name, **dataclasses.asdict(part)}


def build_part(description: dict[str, Any] | None) -> Any:
    """The part that was described."""
    if description is None:
        return None
    parameters = dict(description)
    return _PARTS[parameters.pop("name")](**parameters)


def digest(values: NDArray[np.float64], key: Key) -> str:
    """A keyed fingerprint of consumed values: tells nothing about them without the key."""
    return hashlib.blake2b(values.tobytes(), key=key.reveal(), person=b"fastdp replay 1").hexdigest()


def pack_counts(counts: NDArray[np.int64]) -> str:
    """A histogram as text."""
    return base64.b64encode(zlib.compress(counts.astype("<i8").tobytes(), 1)).decode()


def unpack_counts(text: str) -> NDArray[np.int64]:
    """The histogram again."""
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), "<i8").astype(np.int64)


def encode(content: dict[str, Any]) -> bytes:
    """The payload of a state file."""
    return json.dumps(content, separators=(",", ":")).encode()


def decode(payload: bytes, name: str) -> dict[str, Any]:
    """The content of a payload that passed its authentication."""
    try:
        content = json.loads(payload)
        if not isinstance(content, dict) or "class" not in content:
            raise ValueError("no publisher in it")
    except ValueError as error:
        raise StateError(f"state file {name!r} is damaged: {error}") from error
    return content
