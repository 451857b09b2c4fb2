"""Invisible characters: two names that differ in one look alike, and would have a budget each."""

from __future__ import annotations

from itertools import chain

from fastdp import validation
from fastdp.errors import ParameterError

#: Default_Ignorable_Code_Point of Unicode (DerivedCoreProperties.txt, 15.1): what displays leave out.
_IGNORABLE = (
    *(range(0xAD, 0xAE), range(0x34F, 0x350), range(0x61C, 0x61D), range(0x115F, 0x1161), range(0x17B4, 0x17B6)),
    *(range(0x180B, 0x1810), range(0x200B, 0x2010), range(0x202A, 0x202F), range(0x2060, 0x2070)),
    *(range(0x3164, 0x3165), range(0xFE00, 0xFE10), range(0xFEFF, 0xFF00), range(0xFFA0, 0xFFA1)),
    *(range(0xFFF0, 0xFFF9), range(0x1BCA0, 0x1BCA4), range(0x1D173, 0x1D17B), range(0xE0000, 0xE1000)),
)
#: Letters and symbols whose picture is empty: braille without dots, a filler, hieroglyph blanks, a null note head.
_BLANK = (range(0x2800, 0x2801), range(0x13441, 0x13443), range(0x16FE4, 0x16FE5), range(0x1D159, 0x1D15A))
UNSEEN = frozenset(chain(*_IGNORABLE, *_BLANK))


def refuse_unseen(what: str, name: str) -> None:
    """ParameterError if a name that is new to a ledger has such a character; older ledgers may have some."""
    for at, character in enumerate(name):
        if ord(character) in UNSEEN:
            shown, found = validation.shown(name), f"U+{ord(character):04X} at {at}"
            raise ParameterError(f"{what} = {shown}: expected characters that can be seen, got {found}")
