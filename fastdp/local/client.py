"""A user's device in ToPL (ToPS section 4)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, NoReturn

import numpy as np

from fastdp import validation
from fastdp.data import column
from fastdp.errors import DataError, FastDPError, ParameterError, StateError
from fastdp.kinds import Array
from fastdp.local.encoding import encode, mechanism_named
from fastdp.local.mechanisms import Mechanism, WordOptions
from fastdp.noise.key import Key
from fastdp.record import PartOf, Real, Whole, parameter, record
from fastdp.state.driver import Publisher
from fastdp.state.machine import Machine, Transition, single_caller

VERSION = 1
MAX_LENGTH = 4096


@record
class Announcement:
    """Asks users, in public, for one report each.

    Parameters
    ----------
    mechanism : Mechanism
        :class:`SquareWave` on [0, bound] to estimate the threshold, then :class:`Hybrid` on [0, theta].

    Examples
    --------
    >>> from fastdp.local import Announcement, SquareWave
    >>> asked = Announcement(SquareWave(1.0, 0.0, 44.0))
    >>> Announcement.from_text(asked.to_text()) == asked
    True
    """

    mechanism: Mechanism = parameter(PartOf(Mechanism, "fastdp.local"))

    def to_text(self) -> str:
        """Return one line of JSON."""
        m = self.mechanism
        named = {"mechanism": type(m).__name__, "epsilon": m.epsilon, "low": m.low, "high": m.high}
        return json.dumps({"fastdp": VERSION, **named})

    @classmethod
    def from_text(cls, text: object) -> Announcement:
        """Read :meth:`to_text`'s line; else DataError."""
        # Not shown: it may be the user's value, passed as the announcement.
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


@dataclass(frozen=True)
class ClientState:
    """Number of reports made (0 or 1), and the message."""

    n_seen: Annotated[int, Whole(0, 1)] = 0
    message: bytes | None = None


class Asked(NamedTuple):
    """A batch: mechanism, value, source of the random word."""

    mechanism: Mechanism
    value: float
    word: WordOptions


@record
class ClientMachine(Machine[ClientState]):
    """Transition function of :class:`Client`."""

    epsilon: float = parameter(Real(above=0.0))

    def start(self, key: Key) -> ClientState:
        return ClientState()

    def read(self, *batch: Any) -> Asked:
        announcement, value, word = batch
        asked = announcement if isinstance(announcement, Announcement) else Announcement.from_text(announcement)
        if asked.mechanism.epsilon > self.epsilon:
            raise ParameterError(
                f"announcement asks for epsilon = {asked.mechanism.epsilon!r}: expected at most "
                f"{self.epsilon!r}, which this user accepts"
            )
        return Asked(asked.mechanism, value, word)

    def parts(self, batch: Asked) -> tuple[Array | bytes, ...]:
        text = Announcement(batch.mechanism).to_text().encode()
        return text, np.asarray(np.int64(batch.mechanism.steps_of(batch.value)))

    def step(self, state: ClientState, batch: Asked, key: Key) -> Transition[ClientState]:
        batch.mechanism.steps_of(batch.value)
        message = state.message
        if message is None:
            message = encode(batch.mechanism, batch.mechanism.perturb(batch.value, **batch.word))
        return Transition(ClientState(1), lambda: message, drawn={"message": message})


class Client(Publisher[ClientState]):
    """Reports one user's value, once.

    Parameters
    ----------
    epsilon : float
        Largest privacy loss that this user accepts; a server that asks for more gets no report.

    Notes
    -----
    Privacy: the report is exactly epsilon-DP in the local model.  A client reports once and cannot be copied; loaded
    with ``replay=True`` it repeats the message for the same value.

    Examples
    --------
    >>> from fastdp.local import Announcement, Client, Hybrid, decode
    >>> asked = Announcement(Hybrid(1.0, 0.0, 44.0))
    >>> message = Client(1.0).answer(asked, 12.5)
    >>> decode(message).reports.size
    1
    """

    _MACHINE = ClientMachine
    #: Words come from the operating system, or from the call.
    noise_fingerprint = None

    @validation.spelled
    def __init__(self, epsilon: float) -> None:
        self._begin(ClientMachine(epsilon), Key.choose(None, None))

    @property
    def epsilon(self) -> float:
        """Largest privacy loss that this user accepts."""
        epsilon: float = self._machine.epsilon
        return epsilon

    @single_caller
    def answer(
        self,
        announcement: Announcement | str,
        value: float,
        *,
        seed: int | str | None = None,
        stream: int = 0,
        start: int = 0,
    ) -> bytes:
        """Return the user's report as a message for :meth:`fastdp.ToPLServer.receive`.

        Parameters
        ----------
        announcement : Announcement or str
            :attr:`fastdp.ToPLServer.announcement`.
        value : float
            Clipped to the announced domain.
        seed, stream, start
            Of the random word, in simulations; by default the operating system's.

        Raises
        ------
        StateError
            If this client has answered.
        ParameterError
            If the server asks for too much epsilon.
        DataError
            For another value or announcement.
        """
        if not column.is_number(value):
            raise DataError(f"value is a {type(value).__name__}: expected one number, the user's own")
        if self._state.n_seen:
            raise StateError("this client has answered: expected one report a user (a second costs epsilon again)")
        word = {"seed": seed, "stream": stream, "start": start}
        message: bytes = self._call(self._machine.read(announcement, value, word))
        return message

    def _rekeyed_copy(self) -> NoReturn:
        raise StateError("a Client cannot be copied: it would report twice; expected a new one, for another user")

    def __reduce__(self) -> NoReturn:
        raise StateError("a Client cannot be copied or pickled: it would report twice; use keep() and load()")
