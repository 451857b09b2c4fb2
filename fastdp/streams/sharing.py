"""Publishers alike share one composition, with all that follows from it: checks, guarantee, the encoding for keys."""

from __future__ import annotations

from typing import Any

from fastdp.noise.key import Binding, Key


def noise_key(composition: Any, secret: Key) -> Key:
    """The noise key of a composition under a secret: :meth:`fastdp.noise.key.Key.bind`."""
    if secret.binding is not Binding.ROOT:
        return secret
    return secret.bound(encoded(composition, secret))


def encoded(composition: Any, secret: Key) -> bytes:
    """What :meth:`fastdp.noise.key.Key.composition` gives under any root secret.

    That of a shared composition is kept; it takes ten times as long as a key.
    """
    own = vars(composition)
    encoding: bytes | None = own.get("encoding")
    if encoding is None:
        encoding = secret.composition(composition)
        if "encoding" in own:
            own["encoding"] = encoding
    return encoding
