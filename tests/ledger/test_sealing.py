"""Numbers and keys that a ledger's promises rest on, by themselves."""

from __future__ import annotations

import hmac
from fractions import Fraction

import mpmath
import pytest

from fastdp.ledger import chain, tally
from fastdp.randomness.key import Key

KEY = Key.from_bytes(bytes(range(32)))


@pytest.mark.parametrize(
    "exponent", [Fraction(0), Fraction(1, 3), Fraction(1), Fraction(0.1), Fraction(50), Fraction(700)]
)
def test_e_to_the_epsilon_is_rounded_up_by_next_to_nothing(exponent: Fraction) -> None:
    """Deltas are multiplied by it: below the truth it would understate them."""
    with mpmath.workdps(200):
        true = mpmath.exp(mpmath.mpf(exponent.numerator) / exponent.denominator)
        above = tally._exp_above(exponent)
        error = mpmath.mpf(above.numerator) / above.denominator / true - 1
    assert 0 < error < mpmath.mpf(10) ** -45


def test_every_ledger_has_a_sealing_key_of_its_own() -> None:
    """Lines of one ledger are no lines of another under the same key, nor does the key itself seal anything."""
    seals = {chain.sealing(KEY, name)(b"line") for name in ("one", "two")}
    seals |= {chain.sealing(None, "one")(b"line"), hmac.digest(KEY.reveal(), b"line", "sha256")}
    assert len(seals) == 4
