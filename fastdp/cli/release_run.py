"""One run of ``fastdp release``: values read, published, written, with what belongs to them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from fastdp._version import __version__
from fastdp.cli.errors import legible
from fastdp.cli.writers import Write, open_target
from fastdp.data.readers import Source, open_source
from fastdp.errors import DataError
from fastdp.kinds import Floats
from fastdp.streams.methods import Adaptive
from fastdp.streams.pak import PAK
from fastdp.streams.publisher import StreamPublisher
from fastdp.streams.release import WholeStream

# Tables, durations and progress on a terminal.


def as_table(rows: Iterable[tuple[str, str]]) -> str:
    """Names and what they are, one a line, aligned."""
    listed = list(rows)
    width = max(len(name) for name, _ in listed)
    return "\n".join(f"{name:<{width}}  {text}" for name, text in listed)


def seconds(duration: float) -> str:
    """A duration of readable length: 0.0021 s, 12.3 s."""
    return f"{duration:.3g} s" if duration < 100 else f"{duration:,.0f} s"


def rate(count: int, duration: float) -> str:
    """Values per second, with a word for the size."""
    per_second = count / max(duration, 1e-9)
    for unit, word in ((1e9, " billion"), (1e6, " million"), (1e3, " thousand")):
        if per_second >= unit:
            return f"{per_second / unit:.3g}{word} values/s"
    return f"{per_second:.3g} values/s"


def watched(source: Source, *, quiet: bool) -> Iterator[NDArray[np.float64]]:
    """The source's chunks, with a bar if standard error is a terminal and ``quiet`` is not set."""
    unit = source.unit if source.unit == "B" else f" {source.unit}"
    with _bar(source.name, source.total, unit, quiet=quiet) as bar:
        for chunk in source.chunks:
            yield chunk
            bar.update(chunk.size if source.position is None else source.position() - bar.n)


def counted(total: int, unit: str, name: str, *, quiet: bool) -> Iterator[int]:
    """0 to ``total`` - 1, with a bar as :func:`watched`."""
    with _bar(name, total, f" {unit}", quiet=quiet) as bar:
        for number in range(total):
            yield number
            bar.update()


def _bar(name: str, total: int | None, unit: str, *, quiet: bool) -> tqdm[NoReturn]:
    return tqdm(
        total=total,
        unit=unit,
        unit_scale=True,
        desc=name,
        file=sys.stderr,
        disable=quiet or not sys.stderr.isatty(),
        leave=False,
    )


if TYPE_CHECKING:
    from fastdp.cli.options import LedgerOptions
    from fastdp.cli.resume import Resume
    from fastdp.streams.topl_publisher import ToPL

    Publisher = StreamPublisher | ToPL | PAK

#: What ``--values`` publishes, by the columns of the output.
VALUES = {"published": ("value",), "revised": ("revised",), "both": ("value", "revised")}
#: Inputs that say how many values they hold.
COUNTED = (".npy", ".npz", ".parquet", ".pq")


@dataclass(frozen=True)
class Run:
    """What is read and written, and how; as the command's options say it."""

    method: str
    source: str
    output: str
    column: str | None
    chunk_size: int
    values: str
    index: bool
    follow: bool
    quiet: bool
    force: bool

    @property
    def counted(self) -> bool:
        """Whether the input says how many values it holds."""
        return self.source.lower().endswith(COUNTED)

    def opened(self) -> Any:
        """The input, open in a block."""
        return open_source(self.source, self.column, self.chunk_size, live=self.follow)

    def publish(self, system: Publisher | WholeStream, resume: Resume | None, budget: LedgerOptions) -> Publisher:
        """Read, publish and write; gives the publisher as it ends."""
        with ExitStack() as stack:
            opened: Source = stack.enter_context(self.opened())
            record, again = None, False
            reservation: dict[str, Any] | None = None
            if resume is not None:
                again = resume.wrote(self.output)
                record = lambda: resume.record(self.output, reservation)  # noqa: E731 - the reservation is made below
            made: list[Publisher] = []
            write = stack.enter_context(
                open_target(
                    self.output,
                    force=self.force or again,
                    record=record,
                    columns=("index",) * self.index + VALUES[self.values],
                    describe=lambda: self._facts(system, made[0]),
                    live=self.follow,
                )
            )
            if opened.unit == "values" and opened.total is not None:
                # Their number is public: what is wrong with it costs nothing.
                _check_count(opened.name, opened.total, system)
                if isinstance(system, PAK):
                    system.check_room(opened.total)
            if resume is not None:
                stack.enter_context(resume.unless_refused())
            reservation = stack.enter_context(budget.paid(system, legible(self.source), resume))
            if isinstance(system, WholeStream):
                with self.opened() as first:
                    made.append(system.publisher(self._finite(system, first)))
            else:
                made.append(system)
            publisher, sink = made[0], _Sink(write, self.index, system.holdout)
            chunks = self._read(opened, resume)
            if self.values == "published":
                for chunk in chunks:
                    with self._named(opened, publisher, publisher.n_seen, chunk):
                        sink.take(_publish_values(publisher, chunk))
            else:
                self._publish_whole(opened, publisher, chunks, sink)
            _check_count(opened.name, publisher.n_seen, system)
            return publisher

    def _read(self, opened: Source, resume: Resume | None) -> Iterator[Floats]:
        for chunk in watched(opened, quiet=self.quiet):
            if resume is not None:
                resume.follow(chunk)
            yield chunk

    def _finite(self, system: WholeStream, opened: Source) -> Iterator[Floats]:
        """All values in a first pass, which chooses theta."""
        before = 0
        for chunk in watched(opened, quiet=self.quiet):
            with self._named(opened, system, before, chunk):
                yield system.finite(chunk, before)
            before += chunk.size

    def _publish_whole(self, opened: Source, publisher: Publisher, chunks: Iterator[Floats], sink: _Sink) -> None:
        """Revised values are made once the input has ended: all of it is kept."""
        values = np.concatenate([np.empty(0), *chunks])
        _check_count(opened.name, values.size, publisher)
        with self._named(opened, publisher, 0, values):
            release = publisher.release(values)
        columns = {"value": release.values, "revised": release.revised}
        for begin in range(0, len(release), self.chunk_size):
            sink.take(*(columns[name][begin : begin + self.chunk_size] for name in VALUES[self.values]))

    @contextmanager
    def _named(self, opened: Source, system: Any, before: int, chunk: Floats) -> Iterator[None]:
        """An error about a value that is not finite says which of the input's it is."""
        try:
            yield
        except DataError:
            bad = np.flatnonzero(~np.isfinite(chunk))
            if not bad.size:
                raise
            raise DataError(
                f"{opened.name}: value {before + bad[0] + 1:,} is missing, NaN or infinite; "
                f"expected finite numbers{_way_out(system)}"
            ) from None

    def _facts(self, system: Any, publisher: Publisher) -> dict[str, Any]:
        """What a file says beside its values: public, in terms that strict JSON has, the same at each run."""
        return {
            "fastdp": __version__,
            "method": self.method,
            "offset": system.holdout,
            "threshold": publisher.threshold,
            "guarantee": system.guarantee.to_dict(),
        }


@dataclass
class _Sink:
    """Writes published values, with their places in the input where they are asked for."""

    write: Write
    index: bool
    position: int

    def take(self, *columns: Floats) -> None:
        """The next values."""
        size = columns[0].size
        if not size:
            return
        places = [np.arange(self.position, self.position + size)] if self.index else []
        self.write(*places, *columns)
        self.position += size


def _publish_values(publisher: Publisher, chunk: Floats) -> Floats:
    """One value for each behind the hold-out; of PAK, as ``PAK.release``, the differences of its running sums."""
    if not isinstance(publisher, PAK):
        return publisher.publish(chunk)
    before = publisher.running_sum
    sums = publisher.publish(chunk)
    if before is None and sums.size and publisher.holdout:
        # The hold-out's sum is where the running sums begin.
        before, sums = float(sums[0]), sums[1:]
    return np.diff(sums, prepend=0.0 if before is None else before)


def _check_count(name: str, count: int, system: Publisher | WholeStream) -> None:
    """DataError if that many values are too few."""
    if not count:
        raise DataError(f"{name}: empty, holds no values")
    if count <= system.holdout:
        raise DataError(
            f"{name}: {count:,} values came, all within the hold-out of {system.holdout:,}, so nothing can be "
            f"published; expected more values, a smaller --holdout{_other_ways(system)}"
        )


def _other_ways(system: object) -> str:
    """What else than a smaller hold-out leaves values to publish: the options that the method has."""
    if isinstance(system, (Adaptive, WholeStream)):
        return ", --expected-length, or a public --threshold"
    return " or --expected-length" if isinstance(system, StreamPublisher) else " or a public --threshold"


def _way_out(system: object) -> str:
    """What else can be done about values that are missing."""
    central = isinstance(system, (StreamPublisher, WholeStream))
    return " (or --nonfinite zero, which counts such values as 0)" if central else ""
