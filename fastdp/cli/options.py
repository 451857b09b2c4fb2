"""Options that commands share."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from fastdp.cli.resume import Resume
    from fastdp.ledger import Ledger
    from fastdp.ledger.entry import Entry


Decorator = Callable[[Any], Any]
_TYPES: dict[str, Any] = {
    "": str,
    "int": int,
    "float": float,
    "from0": click.IntRange(min=0),
    "from1": click.IntRange(min=1),
    "path": click.Path(path_type=Path),
    "file": click.Path(path_type=Path, exists=True, dir_okay=False),
}


def declared(text: str, **more: dict[str, Any]) -> tuple[Decorator, ...]:
    """Options as they are listed: each begins a line with its flags, then two spaces and its help.

    Between flags and help stand ``METAVAR:type`` or ``(a|b)``, ``as`` with the argument's name, ``required`` or
    ``multiple``, and ``=`` with the default.  With flags alone it is on or off.

    Parameters
    ----------
    text : str
        The list.
    more : dict
        Further arguments of :func:`click.option`, by the argument's name.
    """
    options = []
    for listed in re.split(r"\n(?=-)", text.strip()):
        head, _, told = re.sub(r"\n +", " ", listed).partition("  ")
        flags, *words = head.split()
        names, rest = flags.split("/"), iter(words)
        given: dict[str, Any] = {"help": re.sub(r" +(?=\[default)", "  ", told)}
        if not words:
            given["is_flag"] = True
        for word in rest:
            if word == "=":
                given |= {"default": given.get("type", str)(next(rest)), "show_default": True}
            elif word == "as":
                names.append(next(rest))
            elif word in ("required", "multiple"):
                given[word] = True
            elif word[0] == "(":
                given["type"] = click.Choice(word[1:-1].split("|"))
            else:
                metavar, _, kind = word.partition(":")
                given |= {"metavar": metavar or None, "type": _TYPES[kind]}
        name = names[-1].lstrip("-").replace("-", "_")
        options.append(click.option(*names, **{**given, **more.get(name, {})}))
    return tuple(options)


def with_options(options: Iterable[Decorator]) -> Decorator:
    """All of them, in their order."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(list(options)):
            function = option(function)
        return function

    return decorate


seed_option, key_file_option, state_option, quiet_option, force_option, ledger_key_option = declared("""
--seed N:from0  For simulation only: reproducible noise, which anyone who guesses N can subtract. NOT PRIVATE.
--key-file FILE:path  A secret key of your own, 32 raw bytes or 64 hexadecimal digits in an owner-only file. Releases
    that differ in method, epsilon, any other parameter or --stream get independent noise under one key; the same
    parameters on the same values give the same output again. Never use one key with the same parameters for two
    inputs (two columns are two inputs: give each its --stream), nor for an input and an altered copy of it: methods
    with noise trees (tops, pak) would give equal noise to different values, which reveals their difference, and every
    method costs epsilon again. With --ledger a second use is refused.  [default: a fresh random key]
--state FILE:path  Records key, options and a digest of the input, so that the same command can be run again after a
    crash and writes the same bytes. Another input is refused. Encrypted under the key of --key-file, if there is one;
    without, anyone who reads it can subtract the noise.
--quiet  No progress bar and no summary.
--force  Replace an existing output.
--ledger-key-file FILE:path  Key that seals the ledger, in the form of --key-file: 32 raw bytes or 64 hexadecimal
    digits, owner-only.
""")
_LEDGER = declared("""
--ledger FILE:path  Record the release in this ledger, before the values are read: an error about them costs epsilon
    too.  The file must be there, unless --limit is given.
--stream NAME  Name of the stream: streams with different names get independent noise under one key, and in a ledger
    budgets are per stream.
--part LABEL  Label of the part of the stream that IN holds, such as its day: budgets of different parts do not add
    up, so parts must be disjoint.  [default: IN may be any part of the stream]
--limit E:float  Refuse, before anything is released, if the stream would then have cost more than this epsilon. A
    limit in the ledger (fastdp ledger limit) holds as well.
--limit-delta D:float  The same for delta.
""")
#: The options of :class:`fastdp.cli.options.LedgerOptions`.
ledger_options = (*_LEDGER, ledger_key_option)
#: Without ``--part``: windows of a table are no parts of a stream.
table_ledger_options = tuple(option for k, option in enumerate(ledger_options) if k != 2)


def check_secrets(seed: int | None, key_file: Path | None) -> None:
    """A seed and a key exclude each other."""
    if seed is not None and key_file is not None:
        raise click.UsageError("--seed and --key-file exclude each other: simulation or release.")


def options_of(ctx: click.Context, method: str, users: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """The options that a method has; others that were given although it has no use for them are refused.

    Parameters
    ----------
    ctx : click.Context
        Knows what was given.
    method : str
        Value of ``--method``.
    users : mapping of str to tuple of str
        Options that not every method has, and the methods that have them.
    """
    for name, methods in users.items():
        if method not in methods and ctx.get_parameter_source(name) is not ParameterSource.DEFAULT:
            raise click.UsageError(f"--{name.replace('_', '-')} does not apply to --method {method}.")
    return {name: ctx.params[name] for name, methods in users.items() if method in methods}


# ``--ledger``: a command's release is reserved in a ledger before it begins.


@dataclass(frozen=True)
class LedgerOptions:
    """The options that tell a ledger, as they were given."""

    ledger: Path | None
    stream: str | None
    part: str | None
    limit: float | None
    limit_delta: float | None
    ledger_key_file: Path | None

    def __post_init__(self) -> None:
        """Some need each other; click.UsageError otherwise."""
        if self.ledger is None:
            for name in ("part", "limit", "limit_delta", "ledger_key_file"):
                if getattr(self, name) is not None:
                    raise click.UsageError(f"--{name.replace('_', '-')} needs --ledger.")
        elif self.stream is None:
            raise click.UsageError("--ledger needs --stream, the name of the stream whose budget is spent.")

    @contextmanager
    def paid(self, publisher: Any, source: str, resume: Resume | None = None) -> Iterator[dict[str, Any] | None]:
        """Set the publisher's epsilon aside before the data are read; the block's end commits it.

        A release that goes on does so under the reservation that an earlier run made; one that was cancelled was for
        nothing, there is a new one then.  No error within the block gives anything back: it may depend on the data,
        and then it says something about them.

        Parameters
        ----------
        publisher : publisher
            Whose guarantee is spent.
        source : str
            The input, for the ledger's note.
        resume : Resume, optional
            The release over all runs of its command.

        Yields
        ------
        dict or None
            What identifies the ledger's entry, for a state file; None without a ledger.

        Raises
        ------
        BudgetError
            If the ledger refuses the release.
        StateError
            If the ledger is not there or does not hold the earlier run's reservation.
        """
        if self.ledger is None or self.stream is None:
            yield None
            return
        from fastdp.ledger.ledger import Reservation

        ledger = self._opened(new=resume is None or resume.reservation is None)
        earlier = None if resume is None else self._earlier(ledger, resume)
        if earlier is not None:
            reservation = Reservation(ledger, earlier)
        else:
            if resume is not None and resume.new:
                # Its name is on disk before the ledger knows it: a run killed in between is not charged again.
                resume.begin()
            named = "" if resume is None else _named(resume)
            note = f"{named}input {source}"[:NOTE]
            reservation = ledger.reserve(publisher, stream=self.stream, part=self.part, note=note)
        # A command that is killed from here on leaves the ledger as one file.
        ledger.close()
        with closing(ledger), reservation:
            yield _described(reservation.entry)

    @contextmanager
    def opened(self) -> Iterator[Ledger | None]:
        """The ledger for a release that reserves in it by itself; None without one."""
        if self.ledger is None:
            yield None
            return
        with closing(self._opened(new=True)) as ledger:
            yield ledger

    def _opened(self, *, new: bool) -> Ledger:
        """The ledger; ``new`` says whether it may be made."""
        from fastdp.errors import ParameterError
        from fastdp.ledger import Ledger
        from fastdp.noise.key import read_ledger_key

        path = cast("Path", self.ledger)
        if new and self.limit is None and not path.exists():
            # A new one would have no limit at all, and the name may be a slip.
            raise ParameterError(
                f"--ledger {path}: no such file; expected a ledger (fastdp ledger limit makes one), or "
                "--limit for a new one"
            )
        key, create = read_ledger_key(self.ledger_key_file), new and self.limit is not None
        return Ledger(path, limit_epsilon=self.limit, limit_delta=self.limit_delta, key=key, create=create)

    def _earlier(self, ledger: Ledger, resume: Resume) -> Entry | None:
        """What an earlier run has reserved for this release, if anything; StateError if that is gone."""
        from fastdp.errors import StateError

        noted, named = resume.reservation, _named(resume)
        mine = [
            each for each in ledger.entries(self.stream) if _described(each) == noted or each.note.startswith(named)
        ]
        if noted is not None and not any(_described(each) == noted for each in mine):
            raise StateError(
                f"ledger {str(self.ledger)!r}: the reservation {noted} of stream {self.stream!r}, under which "
                "this release began, is not there; expected the ledger that holds it, or a new --state file"
            )
        live = [each for each in mine if each.state != "cancelled"]
        return live[-1] if live else None

    def summary(self, publisher: Any) -> list[tuple[str, str]]:
        """What the stream has cost so far, for the command's last words."""
        if self.ledger is None or self.stream is None:
            return []
        from fastdp.ledger import Ledger
        from fastdp.noise.key import read_ledger_key

        spent = Ledger(self.ledger, key=read_ledger_key(self.ledger_key_file), create=False).spent(self.stream)
        free = " (a simulation costs nothing)" if publisher.guarantee.simulated else ""
        return [("ledger", f"{self.ledger}: stream {self.stream!r} has cost {in_words(spent)}{free}")]


#: Longest note that a command writes.
NOTE = 1000


def _named(resume: Resume) -> str:
    """How a release's entry can be found again."""
    return f"release {resume.token}: "


def _described(entry: Entry) -> dict[str, Any]:
    """Enough to recognise an entry, even in a ledger that was made again."""
    return {"id": entry.id, "time": entry.time, "nonce": entry.nonce}


def in_words(loss: Any) -> str:
    """Epsilon with all its digits, and delta and rho if there are any."""
    said = f"epsilon = {loss.epsilon!r}" + (f", delta = {loss.delta!r}" if loss.delta else "")
    return said + (f", rho = {loss.rho!r}" if getattr(loss, "rho", math.inf) < math.inf else "")
