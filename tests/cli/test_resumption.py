"""``fastdp release --state``: the same command again publishes the same, and nothing else under the same noise."""

from __future__ import annotations

import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fastdp.cli.resumption import Kind, Resumption
from fastdp.errors import StateError
from fastdp.ledger import Ledger
from fastdp.state import journal
from fastdp.state.sealed_file import StateFile

pytestmark = pytest.mark.usefixtures("in_folder")


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def release(run) -> Callable:
    """A run with a fresh key and chunks of 500, its noise remembered in ``s``."""

    def release(*arguments: object, seed=None, **options):
        return run(*arguments, "--state", "s", "--quiet", "--chunk-size", 500, seed=seed, **options)

    return release


@pytest.fixture
def cut_short(release, monkeypatch: pytest.MonkeyPatch) -> Callable:
    """A run that ends after so many writes of published values; as far as files can tell, the process died."""

    def cut_short(count: int, *arguments: object):
        from fastdp.cli import writers

        left = [count]
        original = writers.as_lines

        def as_lines(values):
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
            return original(values)

        with monkeypatch.context() as patch:
            patch.setattr(writers, "as_lines", as_lines)
            result = release("in.csv", "-o", "-", *arguments)
        assert result.exit_code == 1
        assert result.stdout
        return result.stdout

    return cut_short


def test_the_same_command_publishes_the_same(release, values, lines, tmp_path: Path) -> None:
    Path("in.csv").write_text(lines(values))
    first = release("in.csv", "-o", "-")
    assert first.exit_code == 0, first.output
    assert first.stdout == release("in.csv", "-o", "-").stdout
    assert release("-", "-o", "-", "--chunk-size", 17, stdin=lines(values)).stdout == first.stdout
    assert release("in.csv", "-o", "out.csv").exit_code == 0
    assert Path("out.csv").read_text() == first.stdout
    assert stat.S_IMODE(Path("s").stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.csv", "out.csv", "s"]


def test_fresh_state_files_hold_fresh_keys(release, values, lines) -> None:
    first = release("-", "-o", "-", stdin=lines(values)).stdout
    Path("s").unlink()
    assert release("-", "-o", "-", stdin=lines(values)).stdout != first


def test_a_key_of_ones_own_gives_its_noise_and_encrypts(release, run, values, lines) -> None:
    Path("in.csv").write_text(lines(values))
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


def test_a_seed_stays_a_simulation(release, run, values, lines) -> None:
    Path("in.csv").write_text(lines(values))
    assert release("in.csv", "-o", "-", seed=5).stdout == run("in.csv", "-o", "-").stdout
    for seed in (6, None):
        assert "another key or seed" in release("in.csv", "-o", "-", seed=seed).stderr


@pytest.mark.parametrize("method", [["adaptive"], ["tops"], ["topl"], ["pak", "--length", 5000]], ids=lambda m: m[0])
def test_what_was_interrupted_goes_on_from_the_start(release, values, lines, cut_short, method) -> None:
    Path("in.csv").write_text(lines(values))
    cut = cut_short(3, "--method", *method)
    whole = release("in.csv", "-o", "-", "--method", *method)
    assert whole.exit_code == 0
    assert whole.stdout.startswith(cut)


def _mark() -> tuple[str, dict]:
    """Key and mark in the state file."""
    content = journal.read(StateFile("s"))[0]
    return content["secret"], content["now"]


def test_altered_values_get_nothing(release, values, lines, cut_short, complaint) -> None:
    Path("in.csv").write_text(lines(values))
    cut = cut_short(3)
    told = len(cut.splitlines()) - 1
    state = _mark()
    # Each position that may have left, the first and the last included; and each way of stopping short.
    for position in (0, 999, 1000, 1000 + told - 1):
        altered = values.copy()
        altered[position] += 1.0
        Path("in.csv").write_text(lines(altered))
        assert "not those" in complaint(release("in.csv", "-o", "-"))
        assert "not those" in complaint(release("in.csv", "-o", "out.csv"))
    Path("in.csv").write_text(lines(values[: 1000 + told - 1]))
    assert "expected the same values again" in complaint(release("in.csv", "-o", "-"))
    assert "expected the same values again" in complaint(release("in.csv", "-o", "out.csv"))
    assert not Path("out.csv").exists()
    assert _mark() == state
    # What comes behind never met noise: it may differ from what would have come.
    behind = values.copy()
    behind[1000 + told + 500 :] += 1.0
    Path("in.csv").write_text(lines(behind))
    assert release("in.csv", "-o", "-").stdout.startswith(cut)


def test_other_settings_are_refused(release, values, lines, complaint) -> None:
    Path("in.csv").write_text(lines(values))
    assert release("in.csv", "-o", "-").exit_code == 0
    said = complaint(release("in.csv", "-o", "-", "--epsilon", 0.25, "--method", "tops", "--prune", 0))
    assert "method = 'adaptive', now 'tops', epsilon = 0.5, now 0.25, prune = 'optimal', now 0" in said


def test_a_refused_command_leaves_no_state(release, values, lines) -> None:
    Path("in.csv").write_text(lines(values))
    for arguments in (("in.csv", "--epsilon", -1), ("missing.csv",), ("in.csv", "--column", 7)):
        assert release("-o", "out.csv", *arguments).exit_code == 1
        assert not Path("s").exists() or "column" in str(arguments)


def test_files_are_kept_apart(release, run, values, lines, complaint) -> None:
    Path("in.csv").write_text(lines(values))
    assert complaint(run("in.csv", "-o", "out.csv", "--state", "in.csv")).startswith(
        "state file in.csv: is the input"
    )
    assert complaint(run("in.csv", "-o", "s.csv", "--state", "s.csv")).startswith("output s.csv: is the state file")


def test_other_and_damaged_files_are_refused(release, values, lines, complaint) -> None:
    import fastdp

    Path("in.csv").write_text(lines(values))
    fastdp.ToPS(0.5, 200.0, 1000, 4096).save("s")
    assert "holds a ToPS" in complaint(release("in.csv", "-o", "-"))
    Path("s").unlink()
    assert release("in.csv", "-o", "-").exit_code == 0
    with pytest.raises(fastdp.errors.StateError, match="holds a fastdp release"):
        fastdp.ToPS.load("s")
    raw = Path("s").read_bytes()
    payload = StateFile("s").read()[0]
    Path("s").write_bytes(raw[:-1])
    assert "damaged" in complaint(release("in.csv", "-o", "-"))
    for old, new in (
        (b'"n_seen":', b'"n_seen":-'),
        (b'"composition":{', b'"composition":3,"x":{'),
        (b'"now":{', b'"now":3,"x":{'),
        (b'"outputs":[]', b'"outputs":7'),
    ):
        Path("s").unlink()
        StateFile("s").write(payload.replace(old, new), None)
        assert "damaged" in complaint(release("in.csv", "-o", "-"))


def test_two_runs_at_once_never_both_publish(release, values, lines, monkeypatch) -> None:
    from fastdp.cli import writers

    Path("in.csv").write_text(lines(values))
    Path("other.csv").write_text(lines(values + 1.0))
    original, said = writers.as_lines, []

    def as_lines(chunk: np.ndarray) -> bytes:
        # In the middle of the first run, once.
        monkeypatch.setattr(writers, "as_lines", original)
        said.append(release("other.csv", "-o", "-"))
        return original(chunk)

    monkeypatch.setattr(writers, "as_lines", as_lines)
    assert release("in.csv", "-o", "-").exit_code == 0
    assert said[0].exit_code == 1
    assert "not those" in said[0].stderr


def test_a_copied_state_file_is_refused(release, run, values, lines, complaint) -> None:
    """Two copies would give two streams the same noise, and cost a ledger once."""
    Path("in.csv").write_text(lines(values))
    first = release("in.csv", "-o", "-").stdout
    shutil.copy("s", "copy")
    Path("s").rename("moved")
    for other in ("copy", "moved"):
        said = complaint(run("in.csv", "-o", "-", "--state", other, seed=None))
        assert said.startswith(f"state file '{other}' is a copy of ")
    Path("moved").rename("s")
    Path("link").symlink_to("s")
    assert run("in.csv", "-o", "-", "--state", "link", seed=None).stdout == first


def test_what_a_killed_run_left_of_its_file_goes_first(release, values, lines, tmp_path: Path) -> None:
    """Another input may follow, under the same noise, where no output appeared: nothing of the first may be left."""
    pytest.importorskip("fcntl", reason="files cannot be locked here")
    Path("in.csv").write_text(lines(np.where(np.arange(values.size) == 4000, np.nan, values)))
    Path("other.csv").write_text(lines(values + 1.0))
    Path("out.npy").symlink_to("real.npy")
    assert release("in.csv", "-o", "out.npy").exit_code == 1
    # As if that run had not ended by an error but been killed.
    left = tmp_path / ".real.npy.0123456789abcdef.tmp"
    left.write_bytes(b"some of the first release")
    assert release("missing.csv", "-o", "elsewhere.npy").exit_code == 1
    assert release("other.csv", "-o", "elsewhere.npy").exit_code == 0
    assert not left.exists()
    assert journal.read(StateFile("s"))[0]["place"]["outputs"] == [
        str(tmp_path / "elsewhere.npy"),
        str(tmp_path / "real.npy"),
    ]


def test_a_resumed_release_is_paid_for(release, values, lines, cut_short, complaint, tmp_path: Path) -> None:
    Path("in.csv").write_text(lines(values))
    told = ("--ledger", "budget", "--stream", "meter", "--limit", 1)
    cut = cut_short(3, *told)
    assert [each.state for each in Ledger("budget").entries()] == ["reserved"]
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


def test_a_cancelled_reservation_is_made_anew(release, values, lines, cut_short) -> None:
    from fastdp.ledger.ledger import Reservation

    Path("in.csv").write_text(lines(values))
    told = ("--ledger", "budget", "--stream", "meter", "--limit", 1)
    cut = cut_short(3, *told)
    account = Ledger("budget")
    Reservation(account, account.entries()[0]).cancel()
    for _ in range(2):
        assert release("in.csv", "-o", "-", *told).stdout.startswith(cut)
        assert [each.state for each in account.entries()] == ["cancelled", "spent"]


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
def test_a_run_killed_behind_the_renaming_has_finished(
    release, values, lines, complaint, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file is there; another one at that place is not taken for it."""
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    Path("in.csv").write_text(lines(values))
    out = Path(f"out{suffix}")

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "chmod", die)
        assert release("in.csv", "-o", out).exit_code == 1
    content = out.read_bytes()
    again = release("in.csv", "-o", out)
    assert again.exit_code == 0, again.output
    assert out.read_bytes() == content
    out.write_bytes(content[:-1] + b"?")
    assert "exists already; expected a new name, or --force" in complaint(release("in.csv", "-o", out))
    assert out.read_bytes() == content[:-1] + b"?"
    out.unlink()
    assert release("in.csv", "-o", out).exit_code == 0
    assert out.read_bytes() == content
    Path("other").mkdir()
    Path("other", out.name).write_bytes(content)
    assert "exists already" in complaint(release("in.csv", "-o", Path("other", out.name)))


def test_of_two_first_runs_at_once_one_is_refused() -> None:
    """And is not advised to delete the state file of the other, whose noise key is in it."""
    kind = Kind("fastdp release", "values")
    first, second = (Resumption(kind, Path("s"), {"epsilon": 1.0}, None) for _ in range(2))
    first.begin("out.csv", None)
    content = Path("s").read_bytes()
    with pytest.raises(
        StateError, match=r"'s' exists: .*another run has just written it.*run the command again"
    ) as refused:
        second.begin("out.csv", None)
    assert "delete" not in str(refused.value)
    assert Path("s").read_bytes() == content
    assert Resumption(kind, Path("s"), {"epsilon": 1.0}, None).key == first.key
