"""What a release has written, file by file: others' files in the places of batches are not taken for its own."""

from __future__ import annotations

import hashlib
import secrets

from fastdp.randomness.key import Key

#: Of a digest.  It is keyed, so nobody can look for two files that have one; and the state file holds all of them.
BYTES = 8


class FileDigests:
    """Keyed digests of a release's files, for each format.

    Parameters
    ----------
    key : Key
        The release's.
    noted : dict of str to str, or None
        As :meth:`plain` gave it; None for a release whose state file knows no digests, nor will.

    Raises
    ------
    ValueError, AttributeError
        If it is something else, which a file may hold.

    Attributes
    ----------
    changed : bool
        Whether there is anything that :meth:`plain` did not give yet.
    """

    def __init__(self, key: Key, noted: dict[str, str] | None) -> None:
        self._secret = key.derive("release files").reveal()
        self._noted = None if noted is None else {kind: _split(text) for kind, text in noted.items()}
        self.changed = False

    def plain(self) -> dict[str, str] | None:
        """For a state file."""
        self.changed = False
        return None if self._noted is None else {kind: "".join(digests) for kind, digests in self._noted.items()}

    def count(self, kind: str, mark: int) -> int:
        """How many of the first ``mark`` files of a format may have been written."""
        return mark if self._noted is None else min(mark, len(self._noted.get(kind, ())))

    def note(self, kind: str, number: int, content: bytes) -> None:
        """Before a file is written: what it will hold.  Files come in the order of their numbers."""
        if self._noted is None:
            return
        digests, digest = self._noted.setdefault(kind, []), self._digest(content)
        if digests[number : number + 1] != [digest]:
            digests[number : number + 1] = [digest]
            self.changed = True

    def agrees(self, kind: str, number: int, content: bytes) -> bool:
        """Whether a file that was noted holds this; True where nothing is known."""
        return self._noted is None or secrets.compare_digest(self._noted[kind][number], self._digest(content))

    def _digest(self, content: bytes) -> str:
        return hashlib.blake2b(content, key=self._secret, digest_size=BYTES).hexdigest()


def _split(text: str) -> list[str]:
    raw = bytes.fromhex(text)
    if len(raw) % BYTES:
        raise ValueError(f"digests of {len(raw)} bytes")
    return [raw[begin : begin + BYTES].hex() for begin in range(0, len(raw), BYTES)]
