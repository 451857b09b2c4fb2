"""``--state``: a release that was killed is run again and writes the same bytes (``docs/state.md``, "Commands").

The file holds key, options and a keyed digest of the input; another input, to which equal noise would reveal the
difference, is refused.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, cast

import click
import msgspec
import numpy as np

from fastdp._version import __version__
from fastdp.errors import DataError, StateError
from fastdp.guarantee import Guarantee, Guaranteed
from fastdp.kinds import Json
from fastdp.ledger import Ledger, Reservation
from fastdp.noise.canonical import NOISE_FORMAT
from fastdp.noise.key import Key, read_key
from fastdp.state import codec
from fastdp.state.state_file import HEADER, StateFile

#: Options on which neither noise nor input depend.
FREE = {"source", "output", "force", "quiet", "picture", "state", "seed", "key_file", "values_as", "confidence"}
FREE |= {"ledger", "limit", "limit_delta", "ledger_key_file"}
BLOCK = 2**20


class Content(msgspec.Struct):
    """Content of a state file."""

    command: str
    options: dict[str, str]
    secret: bytes
    simulated: bool
    home: str
    digest: str
    outputs: list[str]


def chosen_key(given: Json) -> Key | None:
    """Key of ``--key-file`` or ``--seed``, or None; click.UsageError for both."""
    if given["seed"] is not None and given["key_file"] is not None:
        raise click.UsageError("--seed and --key-file exclude each other: simulation or release.")
    if given["key_file"] is not None:
        return read_key(given["key_file"])
    return None if given["seed"] is None else Key.from_seed(given["seed"])


class State:
    """One release over all runs of its command, or a single run without ``--state``; ``key``: of its noise.

    A user's key encrypts the file; a fresh key is in it in the clear.  StateError if the file is damaged, a copy, or
    of another release.
    """

    def __init__(self, command: str, given: Json) -> None:
        own = chosen_key(given)
        self.key, self.kept = own or Key.random(), given["state"] is not None
        self._read: list[tuple[Path, tuple[int, int]]] = []
        self._found, self._header = "", cast("bytes | None", None)
        if not self.kept:
            return
        self._file = StateFile(given["state"], protection(own))
        self._name = f"state file {os.fspath(given['state'])!r}"
        # Another version may draw other noise from the same key.
        options = {"fastdp": __version__, "noise format": str(NOISE_FORMAT)}
        said = {name: value for name, value in sorted(given.items()) if name not in FREE}
        options |= {name: repr(value) for name, value in said.items() if value not in (None, (), False)}
        content = Content(command, options, self.key.reveal(), self.key.simulated, self._file.real, "", [])
        self._content = content if not Path(self._file.real).exists() else self._continued(content, own)
        self.key = Key(self._content.secret, simulated=self._content.simulated)

    def _continued(self, wanted: Content, own: Key | None) -> Content:
        frames, stamp = self._file.open()
        self._header = stamp[: HEADER.size]
        try:
            held = msgspec.convert(codec.decode(frames[0]), Content)
            secret = Key(held.secret, simulated=held.simulated)
        except (msgspec.MsgspecError, *codec.DAMAGE):
            raise StateError(
                f"{self._name} is damaged, or of another program: expected the file that this command has written"
            ) from None
        if held.home != wanted.home:
            raise StateError(
                f"{self._name} is a copy of {held.home!r}: expected it there, because two copies would publish two "
                "streams under one noise"
            )
        same = (held.command, held.options) == (wanted.command, wanted.options)
        # Before a run has recorded its input nothing was published, and options and key may change.
        if not held.digest and not (same and own in (None, secret)):
            return wanted
        if not same:
            names = sorted({*held.options, *wanted.options}) if held.command == wanted.command else []
            changed = [name for name in names if held.options.get(name) != wanted.options.get(name)]
            told = [f"{name} = {held.options.get(name)}, now {wanted.options.get(name)}" for name in changed]
            raise StateError(
                f"{self._name} is of fastdp {held.command}{' with ' * bool(told)}{', '.join(told)}: expected the "
                "same command again"
            )
        if own not in (None, secret) or (own is None and secret.simulated):
            raise StateError(f"{self._name} is of a release with another key or seed: expected the same")
        return held

    def begin(self) -> None:
        """Write key and options before another file depends on them."""
        if self.kept and self._header is None:
            self._write()

    def check(self, *data: Any) -> None:
        """DataError unless `data` are the input of the earlier run."""
        if not self.kept:
            return
        digest = hashlib.blake2b(key=self.key.derive("release digest").reveal())
        for each in (getattr(each, "path", each) for each in data):
            if isinstance(each, (str, os.PathLike)):
                self._read.append((Path(each), _stat(Path(each))))
            for part in _bytes_of(each):
                digest.update(part)
        found, recorded = digest.hexdigest(), self._content.digest
        if recorded not in ("", found):
            raise DataError(
                f"the input is not the one that {self._name} recorded; expected the same input again, because "
                "another one under the same noise would reveal the difference"
            )
        self._found = found

    def wrote(self, output: str) -> bool:
        """True if a run has begun `output`, which may be replaced."""
        return self.kept and os.path.realpath(output) in self._content.outputs

    def record(self, output: str) -> None:
        """Write the digest before any output is visible."""
        if not self.kept:
            return
        for path, before in self._read:
            if _stat(path) != before:
                raise DataError(f"{path}: changed while it was read; expected a file that stays as it is")
        outputs = sorted({*self._content.outputs, *([] if output == "-" else [os.path.realpath(output)])})
        self._content = msgspec.structs.replace(self._content, outputs=outputs, digest=self._found)
        self._write()

    def _write(self) -> None:
        with self._file.locked():
            if self._file.header() != self._header:
                raise StateError(
                    f"{self._name} was changed while this command ran (by another run, or it was put back): let the "
                    "other run end, then run the command again"
                )
            self._header = self._file.write(codec.encode(msgspec.structs.asdict(self._content)), self._header)
            self._file.sync_folder()


def protection(own: Key | None) -> bytes | None:
    """Key of the file, derived from the user's, or none."""
    return None if own is None or own.simulated else own.derive("release state").reveal()


def _stat(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def _bytes_of(data: Any) -> Iterable[bytes]:
    if isinstance(data, (str, os.PathLike)):
        for path in sorted(Path(data).rglob("*")) if Path(data).is_dir() else [Path(data)]:
            if path.is_file():
                yield f"{path.name} {path.stat().st_size}\0".encode() if Path(data).is_dir() else b""
                with path.open("rb") as file:
                    while block := file.read(BLOCK):
                        yield block
    elif data is not None:
        array = isinstance(data, np.ndarray)
        yield f"{data.dtype} {data.shape}\0".encode() if array else data.schema.serialize().to_pybytes()
        for part in [data] if array else data.to_batches():
            yield np.ascontiguousarray(part).tobytes() if array else part.serialize().to_pybytes()


class Paid:
    """A ledger that continues an earlier run's entry; `begin` comes before."""

    def __init__(self, ledger: Ledger, note: str, begin: Callable[[], None] | None) -> None:
        self._ledger, self._note, self._begin = ledger, note, begin

    def reserve(
        self, released: Guarantee | Guaranteed, *, stream: str, part: str | None = None, mechanism: object = None
    ) -> AbstractContextManager[object]:
        """An earlier run's entry, by its noise's fingerprint, or a new one."""
        if self._begin is not None:
            self._begin()
            mine: str | None = getattr(released, "noise_fingerprint", None)
            for entry in self._ledger.entries(stream):
                if (
                    mine is not None
                    and entry.fingerprint == mine
                    and entry.part == part
                    and entry.state != "cancelled"
                ):
                    return Reservation(self._ledger, entry)
        return self._ledger.reserve(released, stream=stream, part=part, mechanism=mechanism, note=self._note)
