"""A user's device in ToPL: it answers one announcement with one report.

Needs NumPy and the standard library only.  Source: ToPS section 4.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastdp import inputs, validation
from fastdp.alone import Alone, exclusive
from fastdp.errors import DataError, FastDPError, ParameterError, StateError
from fastdp.local.encoding import encode, mechanism_named

if TYPE_CHECKING:
    from fastdp.local.base import Mechanism

VERSION = 1
LONGEST = 4096


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
        validation.part("mechanism", self.mechanism, "perturb", "fastdp.local")

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
        if not isinstance(text, str) or len(text) > LONGEST:
            raise DataError(f"announcement {validation.shown(text)}: expected text of at most {LONGEST} characters")
        try:
            fields = dict(json.loads(text))
            version = fields.pop("fastdp")
            if version is not True and version == VERSION:
                return cls(mechanism_named(fields.pop("mechanism"), **fields))
        except (ValueError, TypeError, LookupError, RecursionError, FastDPError) as error:
            raise DataError(f"announcement {validation.shown(text)}: not understood ({error})") from None
        raise DataError(f"announcement of format {validation.shown(version)}: this fastdp reads format {VERSION}")


class Client(Alone):
    """One user: one value, one report.

    Parameters
    ----------
    epsilon : float
        The most privacy loss that this user accepts; a server that asks for more gets an error, and no report.

    Notes
    -----
    Privacy: the report alone is epsilon-DP in the local model, exactly.  A second report about the same value would
    add its epsilon, so a client makes one only; it cannot be copied, and refuses to work in two threads at once or
    after a fork.  That it has answered is not kept across restarts of the device: the application must do that.
    """

    def __init__(self, epsilon: float) -> None:
        super().__init__()
        self.epsilon = validation.positive("epsilon", epsilon)
        self._has_answered = False

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
        if not inputs.is_number(value):
            raise DataError(f"value is a {type(value).__name__}: expected one number, the user's own")
        if self._has_answered:
            raise StateError("this client has answered: expected one report a user (a second costs epsilon again)")
        asked = announcement if isinstance(announcement, Announcement) else Announcement.from_text(announcement)
        if asked.mechanism.epsilon > self.epsilon:
            raise ParameterError(
                f"announcement asks for epsilon = {asked.mechanism.epsilon!r}: expected at most "
                f"{self.epsilon!r}, which this user accepts"
            )
        report = asked.mechanism.perturb(value, seed=seed, stream=stream, start=start)
        self._has_answered = True
        return encode(asked.mechanism, report)
