"""A user's device in ToPL: it answers one announcement with one report.

Needs NumPy and the standard library only.  Source: ToPS section 4.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from fastdp import validation
from fastdp.arrays import column
from fastdp.errors import DataError, FastDPError, ParameterError, StateError
from fastdp.local.encoding import encode, mechanism_named
from fastdp.state.persistence import Position
from fastdp.state.single_caller import exclusive
from fastdp.state.stepwise import Keyless

if TYPE_CHECKING:
    from fastdp.local.base import Mechanism

VERSION = 1
MAX_LENGTH = 4096


@dataclass(frozen=True)
class Announcement:
    """What the server asks users for: public, the same for all.

    Parameters
    ----------
    mechanism : Mechanism
        :class:`SquareWave` on [0, bound] while the threshold is sought, then :class:`Hybrid` on [0, theta].
    """

    mechanism: Mechanism

    def __post_init__(self) -> None:
        """Check the parameter."""
        from fastdp.local.base import Mechanism

        validation.part("mechanism", self.mechanism, Mechanism, "fastdp.local")

    def to_text(self) -> str:
        """JSON, one line."""
        m = self.mechanism
        named = {"mechanism": type(m).__name__, "epsilon": m.epsilon, "low": m.low, "high": m.high}
        return json.dumps({"fastdp": VERSION, **named})

    @classmethod
    def from_text(cls, text: object) -> Announcement:
        """The announcement that was written.

        Raises
        ------
        DataError
            If it is no announcement, or one of another version.
        """
        # Not shown: it may be the user's value in the announcement's place.
        if not isinstance(text, str) or len(text) > MAX_LENGTH:
            raise DataError(
                f"announcement is a {type(text).__name__}: expected text of at most {MAX_LENGTH} characters, from "
                "Announcement.to_text()"
            )
        try:
            fields = dict(json.loads(text))
            version = fields.pop("fastdp")
            if version is not True and version == VERSION:
                return cls(mechanism_named(fields.pop("mechanism"), **fields))
        except (ValueError, TypeError, LookupError, RecursionError, FastDPError):
            raise DataError("announcement: not understood; expected the text of Announcement.to_text()") from None
        raise DataError(f"announcement of another format: this fastdp reads format {VERSION}")


class Client(Keyless):
    """One user: one value, one report.

    Parameters
    ----------
    epsilon : float
        The most privacy loss that this user accepts; a server that asks for more gets an error, and no report.

    Notes
    -----
    Privacy: the report alone is epsilon-DP in the local model, exactly.  A second report about the same value would
    add its epsilon, so a client makes one only; it cannot be copied, and refuses to work in two threads at once or
    after a fork.  Across restarts of the device it remembers that it has answered if it keeps a state file
    (:meth:`keep`); loaded with ``replay=True``, it gives the same message for the same value once more.
    """

    def __init__(self, epsilon: float) -> None:
        super().__init__()
        self.epsilon = validation.positive("epsilon", epsilon)
        self._has_answered = False
        # Made before, but perhaps never sent: a replay gives it again.
        self._message: bytes | None = None

    @exclusive
    def answer(
        self,
        announcement: Announcement | str,
        value: float,
        *,
        seed: int | str | None = None,
        stream: int = 0,
        start: int = 0,
    ) -> bytes:
        """The message with this user's report.

        Parameters
        ----------
        announcement : Announcement or str
            From the server, :attr:`fastdp.ToPLServer.announcement`.
        value : float
            In units of the input; clipped to the announced domain.
        seed, stream, start
            For simulations: which random word to take.  By default one from the operating system.

        Returns
        -------
        bytes
            For :meth:`fastdp.ToPLServer.receive`.

        Raises
        ------
        StateError
            If this client has answered already.
        ParameterError
            If the server asks for more than the accepted epsilon.
        DataError
            If the value is no finite number or the announcement not understood.
        """
        if not column.is_number(value):
            raise DataError(f"value is a {type(value).__name__}: expected one number, the user's own")
        if self._has_answered:
            raise StateError("this client has answered: expected one report a user (a second costs epsilon again)")
        asked = announcement if isinstance(announcement, Announcement) else Announcement.from_text(announcement)
        if asked.mechanism.epsilon > self.epsilon:
            raise ParameterError(
                f"announcement asks for epsilon = {asked.mechanism.epsilon!r}: expected at most "
                f"{self.epsilon!r}, which this user accepts"
            )
        # All that the report depends on, besides its word.
        parts = asked.to_text().encode(), np.int64(asked.mechanism.steps_of(value))
        self._check_batch(*parts)
        message = self._message
        if message is None:
            message = encode(asked.mechanism, asked.mechanism.perturb(value, seed=seed, stream=stream, start=start))
        digest = self._digest
        if self._files.kept is not None:
            text = base64.b64encode(message).decode()
            digest = self._write_ahead(self._chunk(parts), self._position_after(1), message=text)
        self.__dict__.update(_has_answered=True, _message=None, _replay=None, _digest=digest)
        return message

    # State files.

    @property
    def _consumed(self) -> int:
        return int(self._has_answered)

    @property
    def _arguments(self) -> dict[str, Any]:
        return {"epsilon": self.epsilon}

    def _position_after(self, reports: int) -> Position:
        return {"n_seen": reports, "message": None}

    def _position(self) -> Position:
        return self._position_after(self._consumed)

    def _resume(self, saved: Position) -> None:
        self._has_answered = bool(range(2)[saved["n_seen"]])
        self._message = None if saved["message"] is None else base64.b64decode(saved["message"])

    def _rekeyed_copy(self) -> NoReturn:
        raise StateError("a Client cannot be copied: it would report twice; expected a new one, for another user")

    def __reduce__(self) -> NoReturn:
        raise StateError("a Client cannot be copied or pickled: it would report twice; use save() and load()")
