"""State files of every online object, over one table: exact continuation, replays, copies, and one error each."""

from __future__ import annotations

import contextlib
import copy
import importlib
import os
import pickle
import pkgutil
import shutil
import stat as file_modes
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastdp
from fastdp.counters import SelectiveCounting, Simple
from fastdp.errors import DataError, FastDPError, ParameterError, StateError
from fastdp.local.collectors import MECHANISMS
from fastdp.local.encoding import KINDS
from fastdp.noise.key import Binding
from fastdp.state import codec, driver, state_file
from fastdp.state.driver import Publisher
from fastdp.state.state_file import StateFile
from tests.state.saved_objects import CASES, KEY, Alternating, Case, golden_cut, is_empty

pytest.importorskip("shapely")

table = pytest.mark.parametrize("name", CASES)
#: Objects whose input is coarser than floats.
OF_STEPS = {name for name in CASES if "phdstream" in name or name.startswith(("offline", "fixed"))}
OF_STEPS |= {"topl_server", "log_histogram", "histogram", "sums", "client"}


def load(case: Case, path: Path, key: bytes | str | None = KEY, **options):
    return type(case.make()).load(path, key, **options, **case.options)


def place(publisher) -> dict:
    """Everything that a state file says of where an object stands."""
    return publisher._machine.pack(publisher._state)


def without_chain(position: dict) -> dict:
    inner = {name: without_chain(entry) if isinstance(entry, dict) else entry for name, entry in position.items()}
    return {name: entry for name, entry in inner.items() if name not in ("chain", "chains")}


def view(publisher) -> list:
    """All that an object shows without consuming anything."""
    names = ("n_seen", "n_published", "n_steps", "next_count", "running_sum", "threshold", "guarantee", "refused")
    shown = [getattr(publisher, name, None) for name in names]
    if getattr(publisher, "n_steps", 0) and hasattr(publisher, "sample"):
        tree = publisher.tree
        shown += [array.tolist() for array in (tree.lower, tree.upper, tree.counts, tree.depths, publisher.sample())]
    return shown


def ends_of_frames(raw: bytes) -> list[int]:
    """Ends of the state and of each record."""
    ends, at = [], state_file.HEADER.size
    while at < len(raw):
        at += 24 + int.from_bytes(raw[at : at + 8], "big")
        ends.append(at)
    return ends


def changed(value: Any) -> Any:
    """The next value of its type."""
    if isinstance(value, np.datetime64):
        return value + np.timedelta64(1, "us")
    return np.nextafter(value, np.inf) if isinstance(value, np.floating) else value - 1 if value > 0 else value + 1


def alterations(batch: Any) -> Iterator[Any]:
    """Of a batch: another order or length, and of each part in turn an entry at its beginning, middle or end."""
    if not isinstance(batch, (tuple, np.ndarray)):
        yield batch + 0.5
        return
    parts = batch if isinstance(batch, tuple) else (batch,)
    listed = [[each[::-1] for each in parts], [each[:-1] for each in parts]]
    # A stream's chunk that is longer begins with the one that is replayed.
    listed += [[np.append(each, each[-1:], 0) for each in parts]] if isinstance(batch, tuple) else []
    for k, part in enumerate(parts):
        array = part.astype("M8[us]") if part.dtype.kind == "M" else part
        for place in np.ndindex(array.shape) if array.size else ():
            if place[0] in (0, len(array) // 2, len(array) - 1):
                altered = array.copy()
                altered[place] = changed(altered[place])
                listed.append([*parts[:k], altered, *parts[k + 1 :]])
    for each in listed:
        if not all(map(np.array_equal, each, parts)):
            yield tuple(each) if isinstance(batch, tuple) else each[0]


def undisturbed(case: Case) -> list[np.ndarray]:
    publisher = case.make()
    return [case.run(publisher, chunk) for chunk in case.calls]


def kept(case: Case, path: Path, calls: int):
    publisher = case.make()
    publisher.keep(path, KEY)
    for chunk in case.calls[:calls]:
        case.run(publisher, chunk)
    return publisher


@table
def test_what_is_shown_of_an_object_is_short_and_no_state(name: str) -> None:
    publisher = CASES[name].make()
    for chunk in (None, CASES[name].calls[0]):
        if chunk is not None:
            CASES[name].run(publisher, chunk)
        shown = repr(publisher)
        assert shown.startswith(type(publisher).__name__)
        assert len(shown) < 300
        assert not any(text in shown for text in (" object at 0x", "State(", "array("))


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One kept file of each object, about the middle of its stream."""
    folder = tmp_path_factory.mktemp("samples")
    for name, case in CASES.items():
        kept(case, folder / name, golden_cut(case))
    return {name: folder / name for name in CASES}


#: Where online objects live; broken twins of the audit are none.
ONLINE = ("fastdp.streams.", "fastdp.points.", "fastdp.counters.", "fastdp.local.")


def online_objects(kind: type = Publisher) -> set[type]:
    abstract = any(getattr(getattr(kind, name), "__isabstractmethod__", False) for name in dir(kind))
    abstract |= kind._MACHINE is None
    found = set() if abstract or not kind.__module__.startswith(ONLINE) else {kind}
    return found.union(*map(online_objects, kind.__subclasses__()))


def test_the_table_has_every_online_object() -> None:
    for module in pkgutil.walk_packages(fastdp.__path__, "fastdp."):
        if module.name.startswith(ONLINE):
            importlib.import_module(module.name)
    without_rows = online_objects() - {type(case.make()) for case in CASES.values()}
    assert not without_rows
    assert set(MECHANISMS) == set(KINDS.values()), "every mechanism can be in a file"


@table
def test_from_any_cut_it_goes_on_exactly(tmp_path: Path, name: str) -> None:
    """After each call the file is copied: loading it, behind the call or before it, gives the undisturbed run."""
    case, path = CASES[name], tmp_path / "kept"
    whole = undisturbed(case)
    publisher, digests = case.make(), set()
    publisher.keep(path, KEY)
    files = [path.read_bytes()]
    views = [view(publisher)]
    for chunk, expected in zip(case.calls, whole, strict=True):
        assert np.array_equal(case.run(publisher, chunk), expected)
        views.append(view(publisher))
        files.append(path.read_bytes())
        digests.add(publisher.digest)
    assert len(digests) == len({f for f in files[1:] if f != files[0]}), "each call rolls the digest on"
    assert file_modes.S_IMODE(path.stat().st_mode) == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["kept"]
    for cut, content in enumerate(files):
        path.write_bytes(content)
        loaded = load(case, path)
        assert view(loaded) == views[cut]
        for chunk, expected in zip(case.calls[cut:], whole[cut:], strict=True):
            assert np.array_equal(case.run(loaded, chunk), expected)
        assert place(loaded) == place(publisher)
        assert loaded.digest == publisher.digest
        if cut and content != files[cut - 1]:
            path.write_bytes(content)
            replayed = load(case, path, replay=True)
            for chunk, expected in zip(case.calls[cut - 1 :], whole[cut - 1 :], strict=True):
                assert np.array_equal(case.run(replayed, chunk), expected)
            assert replayed.digest == publisher.digest


@table
@pytest.mark.parametrize("key", [None, "a passphrase"])
def test_made_of_bytes_it_goes_on_exactly(tmp_path: Path, name: str, key: str | None) -> None:
    case, path = CASES[name], tmp_path / "bytes"
    whole, cut = undisturbed(case), golden_cut(case)
    publisher = case.make()
    for chunk in case.calls[:cut]:
        case.run(publisher, chunk)
    before = publisher.to_bytes(key)
    loaded = type(publisher).from_bytes(before, key, **case.options)
    for chunk, expected in zip(case.calls[cut:], whole[cut:], strict=True):
        assert np.array_equal(case.run(loaded, chunk), expected)
    path.write_bytes(before)
    with pytest.raises(StateError, match=r"holds bytes of to_bytes\(\): expected a kept file"):
        load(case, path, key)
    if key is not None:
        assert publisher._key.reveal().hex().encode() not in before


@table
def test_an_altered_replay_is_refused(tmp_path: Path, samples: dict[str, Path], name: str) -> None:
    case, path = CASES[name], tmp_path / "kept"
    shutil.copy(samples[name], path)
    replayed = load(case, path, replay=True, moved=True)
    chunk, expected = (each[golden_cut(case) - 1] for each in (case.calls, undisturbed(case)))
    with pytest.raises(DataError, match="differs"):
        case.run(replayed, case.alter(chunk))
    refused = 0
    for altered in alterations(chunk):
        try:
            found = case.run(replayed, altered)
        except DataError:
            refused += 1
        else:
            # Not of another value: a point in the same smallest box, a report drawn from a value in the same step.
            assert name in OF_STEPS, altered
            assert np.array_equal(found, expected)
            shutil.copy(samples[name], path)
            replayed = load(case, path, replay=True, moved=True)
    assert refused > 1 or name == "client"
    with pytest.raises(StateError, match="waits for a replay"):
        replayed.keep(tmp_path / "other")
    with pytest.raises(StateError, match=r"waits for a replay|cannot be copied"):
        copy.copy(replayed)
    case.run(replayed, chunk)
    assert place(replayed) == place(load(case, path)), "its home is here now"


@table
def test_a_second_writer_and_a_stale_file_are_refused(tmp_path: Path, name: str) -> None:
    case, path = CASES[name], tmp_path / "kept"
    first = kept(case, path, len(case.calls) - 1)
    stale, before = path.read_bytes(), place(first)
    second = load(case, path)
    case.run(second, case.calls[-1])
    with pytest.raises(StateError, match="another publisher"):
        case.run(first, case.alter(case.calls[-1]))
    assert place(first) == before
    path.write_bytes(stale)
    with pytest.raises(StateError, match="stale"):
        second.keep(path, KEY)
    with pytest.raises(StateError, match="exists"):
        case.make().keep(path)


@table
def test_a_failed_write_consumes_nothing(tmp_path: Path, name: str) -> None:
    case, path = CASES[name], tmp_path / "kept"
    publisher, whole = case.make(), undisturbed(case)
    publisher.keep(path, KEY)
    for chunk, expected in zip(case.calls, whole, strict=True):
        before = place(publisher)
        path.rename(tmp_path / "aside")
        # An empty chunk needs no write.
        with contextlib.nullcontext() if is_empty(chunk) else pytest.raises(StateError, match="gone"):
            case.run(publisher, case.alter(chunk))
        assert place(publisher) == before
        (tmp_path / "aside").rename(path)
        assert np.array_equal(case.run(publisher, chunk), expected)


@table
def test_a_file_cut_short_is_one_error_or_the_call_before(samples: dict[str, Path], name: str) -> None:
    """A crash leaves the last record unfinished, and nothing was published for it yet."""
    case, raw, path = CASES[name], samples[name].read_bytes(), samples[name].with_suffix(".short")
    state = ends_of_frames(raw)[0]
    for size in range(0, state, 7 if name == "simple_counts" else 997):
        path.write_bytes(raw[:size])
        with pytest.raises(StateError, match=r"altered|cut short"):
            load(case, path)
    last = ends_of_frames(raw)[-2] if len(ends_of_frames(raw)) > 1 else state
    path.write_bytes(raw[:last])
    before = place(load(case, path, moved=True))
    for size in range(last + 1, len(raw), 7 if name == "simple_counts" else max(1, (len(raw) - last) // 5)):
        for zeros in (b"", bytes(len(raw) - size)):
            if raw[:size] + zeros == raw:
                # What was cut off is zeros by chance.
                continue
            path.write_bytes(raw[:size] + zeros)
            # What is left of the tag may be zeros by chance, as if the record had ended in front of it.
            if zeros and any(raw[len(raw) - 16 : size]):
                with pytest.raises(StateError, match="altered"):
                    load(case, path)
            else:
                assert place(load(case, path, moved=True)) == before


@table
def test_one_error_for_each_wrong_file(tmp_path: Path, samples: dict[str, Path], name: str) -> None:
    case, path = CASES[name], tmp_path / "s"
    raw = samples[name].read_bytes()
    with pytest.raises(StateError, match="could not be read: No such file"):
        load(case, path)
    with pytest.raises(StateError, match="could not be read: Is a directory"):
        load(case, tmp_path)
    with pytest.raises(StateError, match="could not be read: Is a directory"):
        case.make().keep(tmp_path, KEY)
    with pytest.raises(StateError, match="could not be written: No such file"):
        case.make().keep(tmp_path / "folder" / "s", KEY)
    for version in (0, 3, 5):
        path.write_bytes(raw[:8] + version.to_bytes(2, "big") + raw[10:])
        with pytest.raises(
            StateError,
            match=f"has format {version}: this fastdp reads format 4 .another fastdp.*; go on with that version",
        ):
            load(case, path)
    path.write_bytes(raw)
    with pytest.raises(StateError, match="wrong key"):
        load(case, path, bytes(32))
    with pytest.raises(StateError, match="expected key = 32 bytes"):
        load(case, path, None)
    other = CASES["client" if name != "client" else "tops"]
    with pytest.raises(StateError, match=f"holds a {type(case.make()).__name__}: expected a"):
        load(other, path)
    case.make().keep(tmp_path / "fresh", KEY)
    with pytest.raises(StateError, match="no chunk to replay"):
        load(case, tmp_path / "fresh", replay=True)


@pytest.mark.skipif(not hasattr(os, "seteuid") or os.geteuid() != 0, reason="needs to change the user")
@table
def test_files_of_another_user_are_one_error(
    tmp_path_factory: pytest.TempPathFactory, samples: dict[str, Path], name: str
) -> None:
    case = CASES[name]
    publisher = load(case, samples[name])
    os.seteuid(65534)
    try:
        with pytest.raises(StateError, match="could not be read: Permission denied"):
            load(case, samples[name])
        with pytest.raises(StateError, match="Permission denied"):
            publisher.keep(samples[name], KEY)
    finally:
        os.seteuid(0)


@table
@pytest.mark.parametrize("early", [False, True])
def test_copies_never_share_noise(name: str, early: bool) -> None:
    """Copied in the middle, and behind the first call: within the hold-out where there is one."""
    case = CASES[name]
    cut = 1 if early else golden_cut(case)
    publisher = case.make()
    for chunk in case.calls[:cut]:
        case.run(publisher, chunk)
    if not case.plain:
        with pytest.raises(StateError, match="pickled"):
            pickle.dumps(publisher)
    if not case.copies:
        for duplicate in (copy.copy, copy.deepcopy):
            with pytest.raises(StateError, match="cannot be copied"):
                duplicate(publisher)
        return
    twins = [copy.copy(publisher), copy.deepcopy(publisher)]
    if case.plain:
        twins.append(pickle.loads(pickle.dumps(publisher)))  # noqa: S301 - made here
    # Noise is bound to what was released, by a chain that belongs to the key.
    assert all(without_chain(place(twin)) == without_chain(place(publisher)) for twin in twins)
    assert len({p._key.reveal() for p in (publisher, *twins)}) == 1 + len(twins)
    whole = undisturbed(case)
    outputs = [[case.run(p, chunk) for chunk in case.calls[cut:]] for p in (*twins, publisher)]
    for a, b in zip(outputs[-1], whole[cut:], strict=True):
        assert np.array_equal(a, b), "a copy changes nothing for the original"
    for others in outputs[:-1]:
        same = all(np.array_equal(a, b) for a, b in zip(others, whole[cut:], strict=True))
        assert same == case.plain


JUNK = (None, -1, 0, 1, 7, 2**70, 0.5, float("nan"), "?", "", [], {}, [1, 2], bytes(8), b"", True)


def leaves(content, path=()):
    """Paths and values of everything in a JSON document."""
    inner = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for name, value in inner:
        yield (*path, name), value
        yield from leaves(value, (*path, name))


@table
@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")  # damage may be another epsilon
@settings(max_examples=40)
@given(data=st.data())
def test_damage_within_an_authentic_file_is_one_error_or_another_run(
    samples: dict[str, Path], name: str, data: st.DataObject
) -> None:
    """Of the file or of a later call, which meets what the file says; never Python's own, and no crash."""
    case, cut = CASES[name], golden_cut(CASES[name])
    content = driver.read_file(StateFile(samples[name], KEY))[0]
    # Mostly of the state: the rest has one reader for all objects.
    top = data.draw(st.sampled_from([("now",), ("now",), ("before",), ()]))
    inside = {where: entry for where, entry in leaves(content) if where[: len(top)] == top}
    where = data.draw(st.sampled_from(sorted(inside, key=str)))
    inner = content
    for step in where[:-1]:
        inner = inner[step]
    if data.draw(st.integers(0, 9)):
        inner[where[-1]] = data.draw(damaged(inside[where], list(inside.values())))
    else:
        del inner[where[-1]]
    path = samples[name].with_suffix(".junk")
    for replay, calls in ((False, case.calls[cut:]), (True, case.calls[cut - 1 :])):
        path.unlink(missing_ok=True)
        StateFile(path).write(codec.encode(content), None)
        with contextlib.suppress(FastDPError):
            loaded = load(case, path, None, replay=replay, moved=True)
            assert type(loaded) is type(case.make())
            for chunk in calls:
                case.run(loaded, chunk)
            loaded.to_bytes()


def damaged(value: Any, others: list[Any]) -> st.SearchStrategy[Any]:
    """Another value, one of another place, or numbers and bytes altered, cut short or made longer."""
    ways = [st.sampled_from(JUNK), st.sampled_from(others).map(copy.deepcopy)]
    if type(value) is int:
        ways += [st.sampled_from([-value, value + 1, value - 1, 2 * value, value + 2**63])]
    if isinstance(value, bytes) and len(value) >= 8:
        entries = len(value) // 8
        numbers = [struct.pack("<q", n) for n in (-1, 2**62, entries)] + [struct.pack("<d", x) for x in (0.5, np.nan)]
        put = st.builds(
            lambda at, number: value[: 8 * at] + number + value[8 * at + 8 :],
            st.integers(0, entries - 1),
            st.sampled_from(numbers),
        )
        ways += [put, put, st.just(value[:-8]), st.just(value + value[-8:]), st.just(value[8:] + value[:8])]
    return st.one_of(ways)


@pytest.mark.parametrize("name", ["tops", "pak", "phdstream", "simple_counts", "adaptive"])
@pytest.mark.parametrize("written", [-1, 0, 2, "1", 1.0, None, True, [1]])
def test_an_unknown_noise_format_is_refused(
    tmp_path: Path, samples: dict[str, Path], name: str, written: object
) -> None:
    content = driver.read_file(StateFile(samples[name], KEY))[0]
    assert content["noise"] == Binding.COMPOSITION
    path = tmp_path / "other"
    StateFile(path, KEY).write(codec.encode({**content, "noise": written, "home": None}), None)
    with pytest.raises(StateError, match=r"noise format .*: expected"):
        load(CASES[name], path)


def test_a_replay_does_not_ask_the_selector_again(tmp_path: Path) -> None:
    asked = []

    class Asked(Alternating):
        def select(self, values, step, last) -> int:
            asked.append(step)
            return len(asked) % 2

    counting = SelectiveCounting([Simple(), Simple()], Asked(), 1.0, seed=1)
    counting.keep(tmp_path / "kept")
    outs = [counting.step(value) for value in (3, 4)]
    replayed = SelectiveCounting.load(tmp_path / "kept", replay=True, selector=Asked())
    with pytest.raises(DataError, match="differs"):
        replayed.step(5)
    again = replayed.step(4)
    assert (again.counter, again.counts.tolist()) == (outs[1].counter, outs[1].counts.tolist())
    assert asked == [0, 1]
    replayed.step(9)
    assert asked == [0, 1, 2]
    with pytest.raises(ParameterError, match="selector = None"):
        SelectiveCounting.load(tmp_path / "kept")


def test_a_client_that_has_answered_remembers_it(tmp_path: Path) -> None:
    case, path = CASES["client"], tmp_path / "kept"
    client = kept(case, path, 0)
    fresh = fastdp.local.Announcement(fastdp.local.Hybrid(1.0, 0.0, 40.0))
    message = client.answer(fresh, 12.5)
    with pytest.raises(StateError, match="has answered"):
        load(case, path).answer(fresh, 12.5)
    replayed = load(case, path, replay=True)
    for announcement in (fresh, fresh.to_text()):
        with pytest.raises(DataError, match="differs"):
            replayed.answer(announcement, 13.5)
    assert replayed.answer(fresh.to_text(), 12.5) == message, "words from the operating system, but not a second time"
    with pytest.raises(StateError, match="has answered"):
        load(case, path).answer(fresh, 12.5)
