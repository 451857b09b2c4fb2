"""What an audit found."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from fastdp.auditing.events import Event


@dataclass(frozen=True)
class AuditResult:
    """An empirical lower bound on epsilon.

    Attributes
    ----------
    epsilon_lower : float
        With probability ``confidence`` or more the true epsilon (at ``delta``) is not below this; at least 0.
    epsilon : float or None
        The claim; None if there is none.
    delta : float
        The claim's delta.
    confidence : float
        One minus the probability that the bound is above the truth, at most.
    trials : int
        Runs on each input.
    event : str
        The event that the bound comes from.
    swapped : bool
        Whether the event is likelier on the adjacent input.
    counted : int
        Runs on each input that the bound comes from; the others chose the event.
    hits, hits_adjacent : int
        In how many of them the event held.
    seconds : float
        Time taken.
    chosen : Event or None
        The event itself: ``chosen.count(outputs)`` says in how many rows of other outputs it holds.
    """

    epsilon_lower: float
    epsilon: float | None
    delta: float
    confidence: float
    trials: int
    event: str
    swapped: bool
    counted: int
    hits: int
    hits_adjacent: int
    seconds: float
    chosen: Event | None = field(default=None, repr=False, compare=False)

    @property
    def violated(self) -> bool:
        """Whether the bound is above the claim."""
        return self.epsilon is not None and self.epsilon_lower > self.epsilon

    @property
    def verdict(self) -> str:
        """In words."""
        if self.epsilon is None:
            return "no claim to check"
        return "claim violated" if self.violated else "consistent with the claim"

    def as_dict(self) -> dict[str, Any]:
        """All of it, the verdict included, as plain numbers and texts."""
        numbers = {part.name: getattr(self, part.name) for part in fields(self) if part.name != "chosen"}
        return {**numbers, "verdict": self.verdict}

    def __str__(self) -> str:
        """A few lines."""
        at = f" at delta = {self.delta:g}" if self.delta else ""
        claim = "none" if self.epsilon is None else f"epsilon = {self.epsilon:g}" + at
        choosing = self.trials - self.counted
        return "\n".join(
            (
                f"{self.verdict}: epsilon is at least {self.epsilon_lower:.4f}{at}",
                f"  claim       {claim}",
                f"  confidence  {self.confidence:.10g}",
                f"  event       {self.event}{' (likelier on x_adjacent)' if self.swapped else ''}",
                f"  held        on x {self.hits:,} times, on x_adjacent {self.hits_adjacent:,}, of {self.counted:,}",
                f"  trials      {self.trials:,} on each input, {choosing:,} of them to choose the event",
                f"  time        {self.seconds:.2f} s",
            )
        )
