"""What a ledger answers: its entries, limits, and what is spent and left."""

from __future__ import annotations

import os
from pathlib import Path

from fastdp import validation
from fastdp.errors import ParameterError
from fastdp.guarantee import Guarantee
from fastdp.ledger import composition, entry
from fastdp.ledger.composition import Budget, Region
from fastdp.ledger.entry import Entry
from fastdp.ledger.odometer import compose
from fastdp.ledger.state import LedgerState, budget
from fastdp.ledger.store import Store, Verification
from fastdp.noise.key import Key


class LedgerReader:
    """The part of a :class:`~fastdp.ledger.Ledger` that reads."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        limit_epsilon: float | None = None,
        limit_delta: float | None = None,
        key: Key | bytes | None = None,
        create: bool = True,
    ) -> None:
        self._path = Path(os.path.realpath(validation.path("path", path)))
        self._limit = budget("limit_epsilon", limit_epsilon, "limit_delta", limit_delta)
        secret = Key.from_bytes(key) if isinstance(key, (bytes, bytearray)) else key
        if secret is not None and not isinstance(secret, Key):
            raise ParameterError(f"key: expected 32 bytes, a Key or None, got {type(key).__name__}")
        self._store = Store(self._path, secret, create=validation.flag("create", create))

    def __repr__(self) -> str:
        return f"Ledger({str(self._path)!r})"

    def close(self) -> None:
        """Close the file, so that it can be moved or copied by itself; the next call opens it again."""
        self._store.close()

    def spent(self, stream: str) -> Guarantee:
        """What all releases of a stream promise together; epsilon 0 where there are none."""
        return compose(self.entries(stream), stream)

    def remaining(
        self, stream: str, *, start: int | None = None, stop: int | None = None, part: str | None = None
    ) -> Budget:
        """What one more release of a stream may cost, on these positions or this part of it.

        Never overstated where epsilons add up.  Where rhos do (``spent`` has one), it is the limit less what was
        spent, and a release is measured by its own rho: a pure one, whose rho is epsilon^2 / 2, may be refused below.
        It is stated in the unit that the stream has already: where a first release for one value (replace) would make
        the earlier ones for one element count twice, less is left.  Delta is what a release's delta and the distance
        of its sampled noise may cost together (:func:`fastdp.ledger.compose`).
        """
        asked = entry.new(Entry(0, "", stream, Guarantee(0.0), part, start, stop, None, "", "spent"))
        with self._store.transaction(write=False) as state:
            return self._left(state, asked)

    def limit(self, stream: str) -> Budget:
        """The limits of a stream: the ledger's and this object's, the lower of each."""
        asked = entry.name("stream", stream)
        with self._store.transaction(write=False) as state:
            return self._lowest(state, asked)

    def limits(self) -> dict[str | None, Budget]:
        """The limits that hold for streams with one of their own, by stream; under None that of all others."""
        with self._store.transaction(write=False) as state:
            return state.limits()

    def entries(self, stream: str | None = None) -> list[Entry]:
        """The releases of a stream, or all, in the order in which they were recorded."""
        asked = None if stream is None else entry.name("stream", stream)
        with self._store.transaction(write=False) as state:
            return state.entries(asked)

    @property
    def streams(self) -> list[str]:
        """Names of the streams with entries, sorted."""
        with self._store.transaction(write=False) as state:
            return state.streams()

    def verify(self, head: str | None = None) -> Verification:
        """Check every line, every seal and every total, and that a line seen earlier is still there.

        No other call looks for changes that were made to the file by other means.

        Parameters
        ----------
        head : str, optional
            A seal that an earlier call returned, or its beginning of at least 16 digits.  The chain alone cannot show
            that its last lines are missing.

        Raises
        ------
        StateError
            Naming the line or table that is wrong, or that no line has the seal.
        """
        if head is not None and len(entry.text("head", head, 64)) < 16:
            raise ParameterError(f"head = {validation.shown(head)}: expected a seal, 16 to 64 hexadecimal digits")
        return self._store.verify(None if head is None else head.lower())

    def _lowest(self, state: LedgerState, stream: str) -> Budget:
        own, recorded = self._limit, state.limit(stream)
        return Budget(min(recorded.epsilon, own.epsilon), min(recorded.delta, own.delta))

    def _left(self, state: LedgerState, wanted: Entry) -> Budget:
        """What a release where this one looks may cost."""
        total, region = state.odometer.total, Region(wanted.part, wanted.start, wanted.stop)
        limit = self._lowest(state, wanted.stream)
        return composition.left(limit, total(wanted.stream, limit=limit), total(wanted.stream, region, limit))
