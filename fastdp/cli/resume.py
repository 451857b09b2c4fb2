"""``--state``: a release that was killed is run again and writes the same bytes.

The file holds key, options and a keyed digest of the input; another input is refused (``docs/state.md``, "Commands").
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import click
import msgspec

from fastdp._version import __version__
from fastdp.cli.terminal import STANDARD
from fastdp.errors import BudgetError, DataError, StateError
from fastdp.kinds import Array, Json
from fastdp.noise.canonical import NOISE_FORMAT
from fastdp.noise.key import Key, read_key, stream_key
from fastdp.state import codec
from fastdp.state.state_file import HEADER, StateFile

#: Options that say which reservation pays for a release.
RESERVED = ("ledger", "stream", "part")


class Content(msgspec.Struct, rename={"command": "class"}):
    """Content of a state file."""

    command: str
    settings: Json
    secret: bytes
    simulated: bool
    home: str
    token: str
    count: Annotated[int, msgspec.Meta(ge=0)]
    digest: str
    outputs: list[str]
    reservation: Json | None


def noise_of(ctx: click.Context, command: str, names: Iterable[str], **others: object) -> tuple[Resume, Key]:
    """The release that a command begins or resumes, and its key.

    ``names``: options on which the output depends; ``others``: further settings.
    """
    given, seed = ctx.params, ctx.params["seed"]
    key = secret_of(seed, given["key_file"])
    # Another version may draw other noise from the same key.
    settings = {"fastdp": __version__, "noise format": NOISE_FORMAT, **others}
    settings |= {name: list(given[name]) if isinstance(given[name], tuple) else given[name] for name in names}
    # A release that was reserved in a ledger continues under that reservation, and under no other.
    settings |= {name: None if given[name] is None else str(given[name]) for name in RESERVED}
    if given["ledger"] is not None:
        settings["ledger"] = os.path.realpath(given["ledger"])
    resume = Resume(command, given["state"], settings, key if seed is None else Key.from_seed(seed))
    return resume, stream_key(resume.key, given["stream"])


def secret_of(seed: int | None, key_file: Path | None) -> Key | None:
    """The key in `key_file`, or None; click.UsageError with a seed."""
    if seed is not None and key_file is not None:
        raise click.UsageError("--seed and --key-file exclude each other: simulation or release.")
    return None if key_file is None else read_key(key_file)


class Resume:
    """One release, over all runs of its command, or a single one (``kept`` false).

    A user's key encrypts the file, else a fresh key is in the clear.  StateError if it is damaged, a copy, or of
    another release or key.  ``count``: values or batches recorded earlier; ``reservation``: ledger entry; ``token``:
    random name in the ledger's note.
    """

    def __init__(self, command: str, path: Path | None, settings: Json, key: Key | None) -> None:
        self._command, self._settings, self.kept = command, settings, path is not None
        self._header: bytes | None = None
        self.key, self.token = key or Key.random(), secrets.token_hex(8)
        self.count, self._digest, self._outputs = 0, "", list[str]()
        self.reservation: Json | None = None
        self._followed, self._saved = 0, False
        if path is not None:
            real = key is not None and not key.simulated
            self._file = StateFile(path, key.derive("release state").reveal() if key is not None and real else None)
            self._name = repr(os.fspath(path))
            self._saved = Path(self._file.real).exists() and self._read(key)
            self._hash = hashlib.blake2b(key=self.key.derive("release digest").reveal())

    def _read(self, key: Key | None) -> bool:
        """Load the file; True if it is for these settings."""
        frames, stamp = self._file.open()
        self._header = stamp[: HEADER.size]
        try:
            content = codec.decode(frames[0])
            if content["class"] != self._command:
                raise StateError(f"state file {self._name} holds a {content['class']}: expected a {self._command}")
            held = msgspec.convert(content, Content)
            secret = Key(held.secret, simulated=held.simulated)
        except (msgspec.MsgspecError, *codec.DAMAGE):
            raise StateError(
                f"state file {self._name} is damaged, or another fastdp wrote it: expected the file that this "
                "command has written"
            ) from None
        if held.home != self._file.real:
            raise StateError(
                f"state file {self._name} is a copy of {held.home!r}: expected it there, because two copies "
                "would publish two streams under one noise"
            )
        was = held.settings
        same = was == self._settings
        self.count, self._digest = held.count, held.digest
        # Before a run has recorded its input nothing was published, and the settings may change.
        if not (same or self.new):
            changed = ", ".join(
                f"{option} = {was.get(option)!r}, now {value!r}"
                for option, value in self._settings.items()
                if was.get(option) != value
            )
            raise StateError(
                f"state file {self._name} is of a release with {changed}: expected the same command again"
            )
        if secret != (key or secret) or (key is None and secret.simulated):
            raise StateError(f"state file {self._name} is of a release with another key or seed: expected the same")
        self.key, self._outputs, self.reservation = secret, held.outputs, held.reservation
        if same:
            # A reservation under this name is for these settings.
            self.token = held.token
        return same

    @property
    def new(self) -> bool:
        """True if no input is recorded, so nothing is published."""
        return not self._digest

    def begin(self) -> None:
        """Write key and token before another file depends on them."""
        if self.kept and not self._saved:
            self._write()

    def wrote(self, output: str) -> bool:
        """True if a run has begun `output`, which may be overwritten."""
        return output != STANDARD and os.path.realpath(output) in self._outputs

    def follow(self, values: Array) -> None:
        """Add the next values, or a batch as one entry, to the digest; DataError if they differ."""
        if not self.kept:
            return
        before = max(0, self.count - self._followed)
        self._hash.update(values[:before].tobytes())
        self._followed += values.size
        if before and self._followed >= self.count and self._hash.hexdigest() != self._digest:
            raise DataError(
                f"the first {self.count:,} values or batches are not those that state file {self._name} recorded; "
                "expected the same input again, because another one under the same noise would reveal the difference"
            )
        self._hash.update(values[before:].tobytes())

    def record(self, output: str, reservation: Json | None) -> None:
        """Write the digest before any output is visible; DataError for a shorter input."""
        if not self.kept:
            return
        if self._followed < self.count:
            raise DataError(
                f"the input has {self._followed:,} values or batches, fewer than the {self.count:,} that state file "
                f"{self._name} recorded; expected the same input again"
            )
        before = self._digest, self._outputs, self.reservation
        self.count, self._digest, self.reservation = self._followed, self._hash.hexdigest(), reservation
        if output != STANDARD:
            self._outputs = sorted({*self._outputs, os.path.realpath(output)})
        if before != (self._digest, self._outputs, self.reservation):
            self._write()

    @contextmanager
    def unless_refused(self) -> Iterator[None]:
        """Delete an unused state file if the ledger refuses."""
        try:
            yield
        except BudgetError:
            if self.kept:
                with self._file.locked():
                    if self.new and self._header is not None and self._file.header() == self._header:
                        Path(self._file.real).unlink()
                        self._file.sync_folder()
            raise

    def _write(self) -> None:
        content = Content(
            self._command, self._settings, self.key.reveal(), self.key.simulated, self._file.real,
            self.token, self.count, self._digest, self._outputs, self.reservation,
        )  # fmt: skip
        with self._file.locked():
            if self._file.header() != self._header:
                raise StateError(
                    f"state file {self._name} was changed while this command ran (another run has written it, or it "
                    "was put back or removed): let the other run end, then run the command again"
                )
            self._header = self._file.write(codec.encode(content), self._header)
            self._file.sync_folder()
        self._saved = True
