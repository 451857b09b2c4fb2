"""``ledger=`` and ``stream=`` of a function that releases: that stream's key, and its budget before the release."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from fastdp import validation
from fastdp.errors import ParameterError
from fastdp.ledger import entry
from fastdp.ledger.ledger import Ledger
from fastdp.noise.key import Key


def stream_key(secret: Key, stream: str | None) -> Key:
    """The key of the stream with this name; the secret itself without one."""
    return secret if stream is None else secret.of_stream(entry.name("stream", stream))


def charge(
    released: Any,
    ledger: Ledger | None,
    stream: str | None,
    *,
    part: str | None = None,
    mechanism: Any = None,
) -> AbstractContextManager[object]:
    """Reserve the loss in a ledger, if there is one; the block that follows makes the release.

    Parameters
    ----------
    released, part, mechanism
        As for :meth:`fastdp.Ledger.reserve`.
    ledger, stream : Ledger and str, or None
        As the caller of the function gave them.

    Raises
    ------
    ParameterError
        For a stream without a name beside a ledger, or a part without a ledger.
    BudgetError
        If the ledger refuses the release; nothing is recorded then.
    """
    if ledger is None:
        if part is not None:
            raise ParameterError(f"part = {validation.shown(part)}: expected None without a ledger")
        return nullcontext()
    validation.part("ledger", ledger, Ledger, "fastdp.ledger")
    if stream is None:
        raise ParameterError("stream = None: expected the name of the stream or table, because there is a ledger")
    return ledger.reserve(released, stream=stream, part=part, mechanism=mechanism)
