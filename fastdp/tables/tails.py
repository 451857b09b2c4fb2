"""Released facts about a column's values beyond the body's clip, for the whole table."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from fastdp.tables.sizes import Beyond, Choice, Number, Side, one_sided

#: Rows past the bound are known of if they are so many standard deviations: once in
#: 20,000 tables by Laplace noise alone.
SEEN = 6.5
#: An end is far if hidden rows add this share of the sum's other error and of the counted sum.
FAR = 3.0
#: Nothing beyond a clip, and no rows.
NOTHING, NONE = Beyond(), Number(0.0, 0.0)


@dataclass(frozen=True, eq=False)
class Tail:
    """Released facts about one column's values in all released cells."""

    #: Ends of the body: of the values that cells' sums hold.
    clip: tuple[float, float]
    #: Ends of all values; of a clip without a bound its own.
    ends: tuple[float, float]
    #: False if the ends are a clip's, beyond which values may lie.
    bounded: bool = True
    #: Rows by size; none if they were not released.
    sides: tuple[Side, ...] = ()
    beyond: Beyond = NOTHING
    #: Released rows below and above the ends.
    outside: tuple[Number, Number] = (NONE, NONE)
    #: Estimated share of rows beyond the body's clip, if known.
    share: float | None = None
    #: True for plans: nothing lies beyond.
    expected: bool = False

    @property
    def choice(self) -> Choice:
        return self.beyond.choice

    @property
    def cells(self) -> bool:
        return self.choice.cells

    @property
    def sign(self) -> float:
        """-1 where all values are at most 0."""
        return -1.0 if self.ends[1] <= 0.0 else 1.0

    @property
    def signs(self) -> list[float]:
        return [sign for sign, end in ((1.0, self.ends[1]), (-1.0, -self.ends[0])) if end > 0.0] if self.sides else []

    @property
    def signed(self) -> bool:
        return self.ends[0] < 0.0 < self.ends[1]

    @cached_property
    def past(self) -> dict[int, int]:
        """Released rows below (0) and above (1) the ends, where they stand out."""
        found = {}
        for end, each in enumerate(self.outside):
            # A clip without a bound says nothing of values beyond it, but where they begin at 0.
            said = self.bounded or not self.ends[end]
            if said and each.value > SEEN * math.sqrt(each.variance):
                found[end] = round(each.value)
        return found

    @property
    def unknown(self) -> tuple[bool, bool]:
        """True for each end beyond which unreleased values may lie."""
        if self.expected:
            return False, False
        found = []
        for end in (0, 1):
            measured = bool(self.sides) or self.clip[end] == self.ends[end]
            # A clip from 0 says that values are not negative.
            without = not self.bounded and self.clip[end] != 0.0
            # Values nearer to 0 than both ends of a clip count as its nearer end.
            inside = (1 - 2 * end) * self.clip[end] > 0.0 and self.clip[end] != self.ends[end]
            found.append(end in self.past or without or inside or not measured)
        return found[0], found[1]

    @property
    def largest(self) -> float | None:
        """Highest edge of sizes that stands out of the noise."""
        return max((each.highest for each in self.sides if each.known), default=None)

    def far(self, confidence: float) -> str | None:
        """A sentence where hidden rows make an end far."""
        down, up = self.beyond.hidden(confidence)
        body = sum(each.total for each in self.sides)
        if max(down, up) <= FAR * body:
            return None
        deviations, bound = one_sided(confidence), max(-self.ends[0], self.ends[1])
        rows = max(each.most_rows(self.choice.second, deviations) for each in self.sides)
        seen = "no size stands out" if self.largest is None else f"the largest size seen is {self.largest:.4g}"
        end = "both ends are" if self.beyond.signed else ("low is" if self.sign < 0.0 else "high is")
        could = f"{rows:,.0f} rows of up to {bound:g} could hide in the noise"
        return f"{end} far: {could}; {seen}; a nearer bound narrows it"
