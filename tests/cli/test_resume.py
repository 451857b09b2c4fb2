"""``fastdp release --state``: the same command again publishes the same, and nothing else under the same noise."""

from __future__ import annotations

import io
import shutil
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from fastdp.cli.resume import Resume
from fastdp.errors import StateError
from fastdp.ledger import Ledger
from fastdp.state import codec
from fastdp.state.state_file import StateFile

pytestmark = pytest.mark.usefixtures("in_folder")


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values, lines) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in.csv").write_text(lines(values))


@pytest.fixture
def release(run) -> Callable:
    """A run with a fresh key and chunks of 500, its noise remembered in ``s``."""

    def release(*arguments: object, seed=None, **options):
        return run(*arguments, "--state", "s", "--quiet", "--chunk-size", 500, seed=seed, **options)

    return release


@pytest.fixture
def cut_short(release, monkeypatch: pytest.MonkeyPatch) -> Callable:
    """A run that ends behind so many bytes of standard output; as far as files can tell, the process died."""

    def cut_short(count: int, *arguments: object):
        from fastdp.cli import writers

        def part(held, stream) -> None:
            stream.write(held.read(count))
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(writers.shutil, "copyfileobj", part)
            result = release("in.csv", "-o", "-", *arguments)
        assert result.exit_code == 130
        assert len(result.stdout) == count
        return result.stdout

    return cut_short


def test_the_same_command_publishes_the_same(release, values, lines, tmp_path: Path) -> None:
    first = release("in.csv", "-o", "-")
    assert first.exit_code == 0, first.output
    assert first.stdout == release("in.csv", "-o", "-").stdout
    assert release("-", "-o", "-", "--chunk-size", 17, stdin=lines(values)).stdout == first.stdout
    assert release("in.csv", "-o", "out.csv").exit_code == 0
    assert Path("out.csv").read_text() == first.stdout
    assert stat.S_IMODE(Path("s").stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.csv", "out.csv", "out.csv.json", "s"]


@pytest.mark.parametrize("method", [["adaptive"], ["tops"], ["topl"], ["pak", "--length", 5000]], ids=lambda m: m[0])
def test_what_was_interrupted_goes_on_from_the_start(release, cut_short, method) -> None:
    cut = cut_short(3000, "--method", *method)
    whole = release("in.csv", "-o", "-", "--method", *method)
    assert whole.exit_code == 0
    assert whole.stdout.startswith(cut)


def test_an_altered_input_gets_nothing(release, values, lines, cut_short, complaint) -> None:
    """Not even where its noise was drawn but not seen: what had left ends behind the first values."""
    cut = cut_short(100, "--method", "tops")
    state = Path("s").read_bytes()
    last = values.size - 1
    for position in (0, 999, 1000, last):
        altered = values.copy()
        altered[position] += 1.0
        Path("in.csv").write_text(lines(altered))
        for output in ("-", "out.csv"):
            said = complaint(release("in.csv", "-o", output, "--method", "tops"))
            assert said.startswith("the first 4,321 values or batches are not those that state file 's' recorded")
    for kept in (last, 1500):
        Path("in.csv").write_text(lines(values[:kept]))
        for output in ("-", "out.csv"):
            said = complaint(release("in.csv", "-o", output, "--method", "tops"))
            assert f"has {kept:,} values or batches, fewer than the 4,321" in said
    assert not Path("out.csv").exists()
    assert Path("s").read_bytes() == state
    Path("in.csv").write_text(lines(values))
    assert release("in.csv", "-o", "-", "--method", "tops").stdout.startswith(cut)


@pytest.mark.parametrize("chunk", [17, 4321, 10_000])
def test_an_input_that_has_grown_is_released_from_its_start(release, values, lines, complaint, chunk) -> None:
    longer = np.append(values, values + 0.5)
    first = release("in.csv", "-o", "-").stdout
    assert release("in.csv", "-o", "out.csv").exit_code == 0
    Path("in.csv").write_text(lines(longer))
    whole = release("in.csv", "-o", "-", "--chunk-size", chunk).stdout
    assert whole.startswith(first)
    assert len(whole.splitlines()) == 1 + longer.size - 1000
    assert release("in.csv", "-o", "out.csv").exit_code == 0
    assert Path("out.csv").read_text() == whole
    Path("in.csv").write_text(lines(values))
    assert "fewer than the 8,642" in complaint(release("in.csv", "-o", "-"))


def test_other_settings_are_refused(release, complaint, monkeypatch) -> None:
    assert release("in.csv", "-o", "-").exit_code == 0
    said = complaint(release("in.csv", "-o", "-", "--epsilon", 0.25, "--method", "tops", "--prune", 0))
    assert "--method 'adaptive', now 'tops', --epsilon 0.5, now 0.25, --prune 'optimal', now 0" in said
    # Another version may draw other noise.
    monkeypatch.setattr("fastdp.cli.resume.__version__", "99.0")
    assert "now '99.0': expected the same command again" in complaint(release("in.csv", "-o", "-"))


def test_other_and_damaged_files_are_refused(release, complaint) -> None:
    import fastdp

    fastdp.ToPS(0.5, 200.0, 1000, 4096).save("s")
    assert "holds a ToPS" in complaint(release("in.csv", "-o", "-"))
    Path("s").unlink()
    assert release("in.csv", "-o", "-").exit_code == 0
    with pytest.raises(StateError, match="'s'"):
        fastdp.ToPS.load("s")
    raw = Path("s").read_bytes()
    payload = StateFile("s").open()[0][0]
    Path("s").write_bytes(raw[:-1])
    assert "was cut short" in complaint(release("in.csv", "-o", "-"))
    for wrong in ({"count": -1}, {"settings": 3}, {"outputs": 7}, {"secret": b"?"}, {"count": None}):
        Path("s").unlink()
        StateFile("s").write(codec.encode({**codec.decode(payload), **wrong}), None)
        assert "is damaged, or another fastdp wrote it" in complaint(release("in.csv", "-o", "-"))
    Path("s").unlink()
    StateFile("s").write(payload[:-1], None)
    assert "is damaged, or another fastdp wrote it" in complaint(release("in.csv", "-o", "-"))


def test_two_runs_at_once_never_both_publish(release, values, lines, complaint, monkeypatch) -> None:
    """One of two first ones is not advised to delete the state file of the other, whose noise key is in it."""
    from fastdp.cli import writers

    Path("other.csv").write_text(lines(values + 1.0))
    original, said = writers.as_lines, []

    def as_lines(chunk: np.ndarray) -> bytes:
        # In the middle of the first run, once.
        if not said:
            said.append(None)
            said[0] = release("other.csv", "-o", "-")
        return original(chunk)

    monkeypatch.setattr(writers, "as_lines", as_lines)
    first = release("in.csv", "-o", "-")
    assert said[0].exit_code == 0
    assert "state file 's' was changed while this command ran" in complaint(first)
    assert release("other.csv", "-o", "-").stdout == said[0].stdout
    runs = [Resume("fastdp release", Path("t"), {"epsilon": 1.0}, None) for _ in range(3)]
    runs[0].begin()
    content = Path("t").read_bytes()
    for write in (runs[1].begin, partial(runs[1].record, "out.csv", None)):
        with pytest.raises(StateError, match=r"'t' was changed .* let the other run end, then run") as refused:
            write()
        assert "delete" not in str(refused.value)
    assert Path("t").read_bytes() == content
    assert Resume("fastdp release", Path("t"), {"epsilon": 1.0}, None).key == runs[0].key


def test_a_copied_state_file_is_refused(release, run, complaint) -> None:
    """Two copies would give two streams the same noise, and cost a ledger once."""
    first = release("in.csv", "-o", "-").stdout
    shutil.copy("s", "copy")
    Path("s").rename("moved")
    for other in ("copy", "moved"):
        said = complaint(run("in.csv", "-o", "-", "--state", other, seed=None))
        assert said.startswith(f"state file '{other}' is a copy of ")
    Path("moved").rename("s")
    Path("link").symlink_to("s")
    assert run("in.csv", "-o", "-", "--state", "link", seed=None).stdout == first


def test_a_resumed_release_is_paid_for(release, cut_short, complaint, tmp_path: Path) -> None:
    told = ("--ledger", "budget", "--stream", "meter", "--limit", 1)
    cut = cut_short(3000, *told)
    assert [each.state for each in Ledger("budget").entries()] == ["spent"]
    Path("budget").rename("gone")
    assert "could not be opened" in complaint(release("in.csv", "-o", "-", *told))
    Ledger("budget").spend(Ledger("gone").entries()[0].guarantee, stream="meter")
    mine = Ledger("gone").entries()[0]
    if Ledger("budget").entries()[0].time != mine.time:
        assert "is not there; expected the ledger" in complaint(release("in.csv", "-o", "-", *told))
    Path("gone").replace("budget")
    # The same ledger by another name.
    again = release("in.csv", "-o", "-", "--ledger", tmp_path / "budget", *told[2:])
    assert again.stdout.startswith(cut)
    assert [each.state for each in Ledger("budget").entries()] == ["spent"]
    assert release("in.csv", "-o", "-", *told).stdout == again.stdout
    assert len(Ledger("budget").entries()) == 1


def test_errors_before_the_first_byte_cost_one_release_at_most(release, values, lines) -> None:
    """Nothing is given back: another run of the command may have gone on under the reservation."""
    told = ("--ledger", "budget", "--stream", "meter", "--limit", 1)
    Path("in.csv").write_text("word\n" + lines(values))
    assert release("in.csv", "-o", "-", "--column", "nope", *told).exit_code == 1
    assert not Path("budget").exists()
    Path("in.csv").write_text("1.0\n\n" + lines(values))
    for output in ("-", "out.npy"):
        for _ in range(3):
            assert release("in.csv", "-o", output, *told).exit_code == 1
    assert [each.state for each in Ledger("budget").entries()] == ["reserved"]
    Path("in.csv").write_text(lines(values))
    assert release("in.csv", "-o", "-", *told).exit_code == 0
    assert Ledger("budget").spent("meter").epsilon == 0.5


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".npy", ".npz", ".parquet"])
def test_a_run_killed_behind_the_renaming_has_finished(release, complaint, suffix: str, monkeypatch) -> None:
    """Its file is there, and is written again; whatever is in its place meanwhile is replaced."""
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    out, chmod = Path(f"out{suffix}"), Path.chmod

    def die(path: Path, mode: int) -> None:
        if path.name == out.name:
            raise KeyboardInterrupt
        chmod(path, mode)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "chmod", die)
        assert release("in.csv", "-o", out).exit_code == 130
    content = out.read_bytes()
    for change in (lambda: None, lambda: out.write_bytes(content[:-1] + b"?"), out.unlink):
        change()
        again = release("in.csv", "-o", out)
        assert again.exit_code == 0, again.output
        assert out.read_bytes() == content
    Path("other").mkdir()
    Path("other", out.name).write_bytes(content)
    assert "exists already" in complaint(release("in.csv", "-o", Path("other", out.name)))


def test_a_file_that_appears_meanwhile_stays(release, complaint, values, lines) -> None:
    class Input(io.BytesIO):
        """Standard input, behind whose first half the file appears."""

        def readinto(self, out) -> int:
            if self.tell() > len(text) // 2:
                Path("out.csv").write_text("precious")
            return super().readinto(out)

    text = lines(np.tile(values, 20)).encode()
    for _ in range(2):
        refused = release("-", "-o", "out.csv", stdin=io.BufferedReader(Input(text)))
        assert "exists already" in complaint(refused)
        assert Path("out.csv").read_text() == "precious"


def test_a_key_of_ones_own_gives_its_noise_and_encrypts(release, run) -> None:
    Path("key").touch(mode=0o600)
    Path("key").write_bytes(bytes(range(32)))
    plain = run("in.csv", "-o", "-", "--key-file", "key", seed=None).stdout
    assert release("in.csv", "-o", "-", "--key-file", "key").stdout == plain
    raw = Path("s").read_bytes()
    assert bytes(range(32)).hex().encode() not in raw
    Path("key").write_bytes(bytes(32))
    assert "wrong key" in release("in.csv", "-o", "-", "--key-file", "key").stderr
    assert "expected key" in release("in.csv", "-o", "-").stderr
    assert Path("s").read_bytes() == raw
    Path("s").unlink()
    assert release("in.csv", "-o", "-", seed=5).stdout == run("in.csv", "-o", "-").stdout
    for seed in (6, None):
        assert "another key or seed" in release("in.csv", "-o", "-", seed=seed).stderr
