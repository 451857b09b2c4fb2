"""``--state``: a release that was killed is run again, and no position gets a second noise.

The state file holds the noise key and a mark: how many values (or batches) the output may already depend on, and a
keyed digest of them.  The mark is written before anything behind it leaves.  The same command then publishes the
stream from its start with the same noise, which gives the same bytes; up to the mark nothing leaves before the digest
has shown that the values are the same, because other values under the same noise would reveal their difference.  A
file of values takes its place at the end, so its mark is the end; what a killed run left of it is removed before
another run writes.  Nor may a copy of the state file be used beside it.
Source: ``docs/state.md``.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import click

from fastdp._version import __version__
from fastdp.cli.file_digests import FileDigests
from fastdp.cli.key_file import read_key
from fastdp.errors import BudgetError, DataError, StateError
from fastdp.files.atomic_file import remove_leftovers
from fastdp.ledger import entry
from fastdp.randomness.canonical import NOISE_FORMAT
from fastdp.randomness.key import Key
from fastdp.state import codec, persistence
from fastdp.state.sealed_file import StateFile

#: Options that say which reservation pays for a release.
RESERVED = ("ledger", "stream", "part")
#: Settings that the first state files did not hold.
YOUNGER = ("columns",)


class Kind(NamedTuple):
    """Whose release it is.

    Attributes
    ----------
    command : str
        As the state file names it.
    unit : str
        What the mark counts.
    clear : function of Path
        Removes what killed runs left of an output.
    """

    command: str
    unit: str
    clear: Callable[[Path], None] = remove_leftovers


def noise_of(
    ctx: click.Context, kind: Kind, names: Iterable[str], **others: Any
) -> tuple[Resumption | None, dict[str, int | Key | None]]:
    """The release that a command begins or goes on with, if it has ``--state``, and the seed or key of its noise.

    Parameters
    ----------
    ctx : click.Context
        Holds the command's options: ``state``, ``seed``, ``key_file``, and those of
        :func:`fastdp.cli.options.ledger_options`.
    kind : Kind
        The command.
    names : iterable of str
        Options on which the output depends, besides the input and the key.
    **others : plain values
        What else it depends on.
    """
    state, seed, key_file = (ctx.params[name] for name in ("state", "seed", "key_file"))
    key = None if key_file is None else read_key(key_file)
    stream = ctx.params["stream"]
    if state is None:
        return None, {"seed": None, "key": _named(Key.choose(seed, key), stream)}
    # Another version may draw other noise from the same key.
    settings = {"fastdp": __version__, "noise format": NOISE_FORMAT, **others}
    settings |= {name: _plain(ctx.params[name]) for name in names}
    # A release that was reserved in a ledger goes on under that reservation, and under no other.
    settings |= {name: None if ctx.params[name] is None else str(ctx.params[name]) for name in RESERVED}
    if ctx.params["ledger"] is not None:
        settings["ledger"] = os.path.realpath(ctx.params["ledger"])
    resumption = Resumption(kind, state, settings, key if seed is None else Key.from_seed(seed))
    return resumption, {"seed": None, "key": _named(resumption.key, stream)}


def _named(secret: Key, stream: str | None) -> Key:
    """The key of the stream that ``--stream`` names, as :func:`fastdp.release` takes it."""
    return secret if stream is None else secret.of_stream(entry.name("stream", stream))


def _plain(option: Any) -> Any:
    """As it comes back from a file."""
    return list(option) if isinstance(option, tuple) else option


class Resumption:
    """One release, over all runs of its command.

    Parameters
    ----------
    kind : Kind
        The command.
    path : Path
        The state file; :meth:`begin` makes it if it is not there.
    settings : dict
        Everything that the output depends on besides the values and the key, as plain values.
    key : Key or None
        The user's own, which encrypts the file too; None for a fresh one, which the file then holds in the clear.

    Raises
    ------
    StateError
        If the file is damaged, a copy, of another release, or of another key.

    Attributes
    ----------
    mark : int
        Up to where output may have left.
    reservation : dict or None
        Under which budget the release began, as :meth:`begin` was told.
    token : str
        A random name of this release, for a ledger's note.
    files : FileDigests
        What was written, where the output is a folder of files.
    """

    def __init__(self, kind: Kind, path: Path, settings: dict[str, Any], key: Key | None) -> None:
        self._kind = kind
        real = key is not None and not key.simulated
        self._file = StateFile(path, key.derive("release state").reveal() if key is not None and real else None)
        self._settings = settings
        self._count = 0
        self._outputs: list[str] = []
        self.reservation: dict[str, Any] | None = None
        self.token = secrets.token_hex(8)
        self._new = True
        noted: dict[str, str] | None = {}
        if Path(self._file.real).exists():
            self.key, self.mark, self._digest, self._states, noted = self._read(key)
        else:
            self.key, self.mark, self._digest = key or Key.random(), 0, ""
            self._states = persistence.StateFiles()
        with persistence.trusting(repr(os.fspath(path))):
            self.files = FileDigests(self.key, noted)
        self._hash = self._fresh_hash()

    def _fresh_hash(self) -> Any:
        return hashlib.blake2b(key=self.key.derive("release digest").reveal(), digest_size=32)

    def _read(self, key: Key | None) -> tuple[Key, int, str, persistence.StateFiles, dict[str, str] | None]:
        name = repr(os.fspath(self._file.path))
        content, header = persistence.read(self._file)
        if content["class"] != self._kind.command:
            raise StateError(f"state file {name} holds a {content['class']}: expected a {self._kind.command}")
        with persistence.trusting(name):
            younger = {name: self._settings[name] for name in YOUNGER if name in self._settings}
            was, place = younger | content["composition"], content["place"]
            home, self._outputs = str(place["state"]), [str(each) for each in place["outputs"]]
            self.reservation = None if place["reservation"] is None else dict(place["reservation"])
        if home != self._file.real:
            raise StateError(
                f"state file {name} is a copy of {home!r}: expected it there, because two copies would publish two "
                "streams under one noise"
            )
        with persistence.trusting(name):
            secret = Key(bytes.fromhex(content["secret"]), simulated=bool(content["simulated"]))
            mark, digest = codec.whole(content["now"]["n_seen"]), str(content["now"]["digest"])
            if mark < 0:
                raise ValueError(f"a mark at {mark}")
        # A file that an earlier run did not come to use, because a ledger refused it for example, binds nobody.
        self._new = not (mark or self._outputs or self.reservation)
        if was == self._settings:
            # Whatever a ledger holds under this name is for these settings.
            self.token = str(place.get("token", self.token))
        elif not self._new:
            changed = ", ".join(
                f"{option} = {was.get(option)!r}, now {value!r}"
                for option, value in self._settings.items()
                if was.get(option) != value
            )
            raise StateError(f"state file {name} is of a release with {changed}: expected the same command again")
        if secret != (key or secret) or (key is None and secret.simulated):
            raise StateError(f"state file {name} is of a release with another key or seed: expected the same")
        # State files from before there were digests of files never get any: those of their first files are unknown.
        return secret, mark, digest, persistence.StateFiles(self._file, header), place.get("files")

    def begin(self, output: str | None, reservation: dict[str, Any] | None) -> None:
        """Put the key on disk, once everything else about the command is known to be in order.

        Parameters
        ----------
        output : str or None
            The file or folder that is about to be written; None for standard output, or where none is chosen yet.
        reservation : dict or None
            What a ledger has reserved for the release, as plain values.
        """
        for known in self._outputs:
            self._kind.clear(Path(known))
        into = [] if output is None else [os.path.realpath(output)]
        outputs = sorted({*self._outputs, *into})
        if self._new or (outputs, reservation) != (self._outputs, self.reservation):
            self._outputs, self.reservation = outputs, reservation
            self._write()
            self._new = False

    def wrote(self, output: str) -> bool:
        """Whether an earlier run has begun to write there."""
        return os.path.realpath(output) in self._outputs

    def follow(self, values: persistence.Chunk) -> None:
        """Count and fingerprint the next values of the stream, or one batch.

        Raises
        ------
        DataError
            If they differ from those that an earlier run has published.
        """
        before = values[: max(0, self.mark - self._count)]
        if before.size:
            self._hash.update(before.tobytes())
            if self._count + before.size == self.mark and self._hash.hexdigest() != self._digest:
                raise DataError(
                    f"the first {self.mark:,} {self._kind.unit} are not those that state file "
                    f"{os.fspath(self._file.path)!r} recorded: other ones under the same "
                    "noise would reveal the difference"
                )
        self._hash.update(values[before.size :].tobytes())
        self._count += values.size

    @property
    def new(self) -> bool:
        """Whether no earlier run has come to begin this release."""
        return self._new

    @property
    def verified(self) -> bool:
        """Whether everything that an earlier run may have published has come again."""
        return self._count >= self.mark

    def record(self) -> None:
        """Move the mark to here, unless an earlier run was further; put it and what was noted on disk."""
        further = self._count > self.mark
        if further:
            self.mark, self._digest = self._count, self._hash.hexdigest()
        if further or self.files.changed:
            self._write()

    @contextmanager
    def unless_refused(self) -> Iterator[None]:
        """A ledger's refusal within leaves no state file, because its key would bind the next run for nothing."""
        try:
            yield
        except BudgetError:
            self._discard()
            raise

    def _discard(self) -> None:
        """Delete the state file, if it is there and no run has come to use it."""
        with self._file.locked():
            if self._file.header() is not None:
                content, _ = persistence.read(self._file)
                place = content["place"]
                if not (content["now"]["n_seen"] or place["outputs"] or place["reservation"]):
                    Path(self._file.real).unlink()
                    self._file.sync_folder()

    def _write(self) -> None:
        now = {"n_seen": self.mark, "digest": self._digest}
        content: dict[str, Any] = {"class": self._kind.command, "composition": self._settings}
        content |= {"secret": self.key.reveal().hex(), "simulated": self.key.simulated}
        content |= {"kept": True, "now": now, "before": None}
        content["place"] = {"state": self._file.real, "outputs": self._outputs}
        content["place"] |= {"reservation": self.reservation, "token": self.token, "files": self.files.plain()}
        self._states.write(self._file, content)

    def finish(self) -> None:
        """Before the last of the output appears.

        Raises
        ------
        DataError
            If fewer values came than an earlier run has published.
        """
        if not self.verified:
            raise DataError(
                f"{self._count:,} {self._kind.unit} came, fewer than the {self.mark:,} that state file "
                f"{os.fspath(self._file.path)!r} recorded: expected the same {self._kind.unit} again"
            )
        self.record()
