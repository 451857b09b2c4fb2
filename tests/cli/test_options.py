"""Options follow from signatures; options from a file; errors and help name them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import click
import pytest
from click.testing import CliRunner, Result

import fastdp
from fastdp.cli import COMMANDS, main
from fastdp.cli.options import arguments, flags, options, parameters
from fastdp.cli.terminal import in_options
from fastdp.errors import FastDPError, ParameterError


def planted(
    frame: object,
    foo: int,
    shape: Literal["round", "square"] = "round",
    share: float | Literal["all"] = 0.5,
    range: tuple[float, float] | None = None,
    by: str | Sequence[str] | None = None,
    sizes: Mapping[str, float] | float | None = None,
    time: str | fastdp.Time | None = None,
    bounds: Mapping[str, float | fastdp.Value] | fastdp.Value | None = None,
    *,
    deep: bool = True,
    rule: fastdp.Ledger | None = None,
    seed: int | None = None,
) -> None:
    """A function of somebody else's.

    Parameters
    ----------
    foo : int
        Number of things, at most ``share``.
    time
        As for :func:`fastdp.totals`.
    """


def parsed(*given: str) -> Any:
    """Arguments of the planted function from a command line."""
    command = click.Command("planted", params=[*options({"": planted})])
    with command.make_context("planted", list(given)) as context:
        return arguments(planted, context.params)


def test_every_parameter_is_an_option_with_its_help() -> None:
    command = click.Command("planted", params=[*options({"": planted})])
    said = " ".join(command.get_help(click.Context(command)).split())
    for text in (
        "--foo N Number of things, at most --share. [required]",
        "--shape round|square [default: round]",
        "--share X|all [default: 0.5]",
        "--range LOW,HIGH",
        "--sizes [COL=]X",
        "--time-unit s|ms|us|ns Of Unix times, in UTC.",
        "--bound [COL=]X|LOW,HIGH",
        "--deep / --no-deep",
    ):
        assert text in said
    for word in ("--frame", "--seed", "--rule", "--bounds "):
        assert word not in said


def test_options_become_arguments() -> None:
    assert parsed("--foo", "3") == {"foo": 3}
    given = "--foo 3 --shape square --share all --range -2,3 --by a --by b --no-deep --sizes a=1 --sizes b=2"
    found = parsed(*f"{given} --time at --every 1h --time-unit s".split())
    assert found == {
        "foo": 3, "shape": "square", "share": "all", "range": (-2.0, 3.0), "by": ["a", "b"], "deep": False,
        "sizes": {"a": 1.0, "b": 2.0}, "time": fastdp.Time("at", "1h", unit="s"),
    }  # fmt: skip
    assert parsed("--foo", "3", "--sizes", "4")["sizes"] == 4.0
    # A field without a column is of all columns that are named, or of the only one.
    one = parsed("--foo", "3", "--bound", "5", "--nonfinite", "zero")["bounds"]
    assert one == fastdp.Value(5.0, nonfinite="zero")
    two = parsed(*["--foo", "3", "--bound", "a=5", "--bound", "b=-1,2", "--weight", "b=3", "--nonfinite", "zero"])[
        "bounds"
    ]
    assert two == {
        "a": fastdp.Value(5.0, nonfinite="zero"),
        "b": fastdp.Value((-1.0, 2.0), weight=3.0, nonfinite="zero"),
    }


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("--foo x", "'x': expected a whole number."),
        ("--foo 3 --shape oval", "'oval': expected round or square."),
        ("--foo 3 --share some", "'some': expected a number or all."),
        ("--foo 3 --range 1", "'1': expected two numbers LOW,HIGH."),
        ("--foo 3 --range 1,2,3", "'1,2,3': expected two numbers LOW,HIGH."),
        ("--foo 3 --sizes a=x", "'x': expected a number."),
        ("--foo 3 --sizes =2", "'=2': expected [COL=]X."),
        ("--foo 3 --sizes a=2 --sizes a=3", "--sizes: expected each column once."),
        ("--foo 3 --sizes a=2 --sizes 3", "--sizes: expected each column once."),
        ("--foo 3 --bound a=2 --bound a=3", "--bound: expected each column once."),
        ("--foo 3 --every 1h", "--every needs --time."),
        ("--foo 3 --time at", "--time needs --every."),
        ("", "Missing option '--foo'."),
    ],
)
def test_texts_that_are_refused(given: str, said: str) -> None:
    with pytest.raises(click.UsageError) as caught:
        parsed(*given.split())
    assert caught.value.format_message().endswith(said)


def test_errors_name_the_option() -> None:
    named = flags(planted)
    assert named["time.unit"] == "--time-unit"
    assert in_options(ParameterError("foo = 3: expected less", parameter="foo"), named) == "--foo 3: expected less"
    assert in_options(ParameterError("foo = None: expected it", parameter="foo"), named) == "--foo: expected it"
    of_entry = ParameterError("range[0] = 3: expected less", parameter="range[0]")
    assert in_options(of_entry, named) == "--range 3: expected less"
    with pytest.raises(ParameterError) as caught:
        parsed("--foo", "3", "--time", "at", "--every", "1q")
    assert in_options(caught.value, named).startswith("--every '1q': expected a length such as")
    for text in ("no parameter", "food = 3: expected less"):
        assert in_options(FastDPError(text, parameter=None), named) == text


def test_parameters_of_public_calls_have_help() -> None:
    """Each parameter is in a docstring, or in one that is referred to."""
    for public in (
        fastdp.release,
        fastdp.totals,
        fastdp.counts,
        fastdp.means,
        fastdp.aggregate,
        fastdp.plan,
        fastdp.Csv,
    ):
        assert [each.flag for each in parameters(public) if not each.help] == []


def test_the_list_of_commands_says_what_each_command_says() -> None:
    context = click.Context(main)
    for name, (_, sentence) in COMMANDS.items():
        command = main.get_command(context, name)
        assert command is not None
        assert (command.help or "").partition("\n\n")[0] == sentence
    assert {"bench", "plot", "datasets", "audit", *COMMANDS} <= set(main.list_commands(context))
    said = " ".join(CliRunner().invoke(main, ["release", "--help"]).output.split())
    assert "NOT PRIVATE" in said
    # Values are differences of running sums.
    assert "--average" not in said
    assert "--lag-sums" not in said


def test_commands_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {"_FASTDP_COMPLETE": "bash_complete", "COMP_WORDS": "fastdp totals --time-", "COMP_CWORD": "2"}
    result = CliRunner().invoke(main, [], env=variables, prog_name="fastdp")
    assert {line.partition(",")[2] for line in result.output.split()} == {"--time-unit", "--time-format"}


CONFIG = """
[release]
output = "out.csv"
epsilon = 0.5
bound = 100
max-range = 4096
holdout = 1000
[totals]
by = ["floor", "city"]
keys = ["1,Rome", "2,Oslo"]
bound = [-1, 20]
[ledger.limit]
epsilon = "none"
[synthesize]
box = [0, 0, 10, 5]
"""


def test_options_from_a_file(run: Callable[..., Result]) -> None:
    Path("own.toml").write_text(CONFIG)
    run("--config own.toml release in.npy --seed 5 --bound 200")
    first = Path("out.csv").read_bytes()
    run("release in.npy -o out.csv --epsilon 0.5 --bound 200 --holdout 1000 --max-range 4096 --seed 5 --force")
    assert Path("out.csv").read_bytes() == first, "the command line comes first"
    rest = "totals readings.parquet -o - --quiet --value kwh --epsilon 1 --seed 5"
    typed = run(f"{rest} --by floor --by city --keys 1,Rome --keys 2,Oslo --bound -1,20")
    assert run(f"--config own.toml {rest}").stdout == typed.stdout
    assert "of its own: none" in run("--config own.toml ledger limit budget").output
    run("--config own.toml synthesize events.csv -o points.csv --epsilon 1 --batch 600 --seed 1")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[release]\nepsilonn = 2", "epsilonn: expected an option without --, as --help lists them"),
        ("[realease]\nepsilon = 2", "realease: expected a table named as a command"),
        ("epsilon = 2", "epsilon: expected a table named as a command"),
        ("[release", "own.toml: "),
        ("[release]\nepsilon = 'x'", "'x': expected a number."),
        ("[release]\nepsilon = true", "epsilon: expected a number, a text or a list of them"),
        ("[release]\nepsilon = [[1]]", "epsilon: expected a number, a text or a list of them"),
        ("[release.epsilon]\nx = 1", "epsilon: expected a number, a text or a list of them"),
        ("[release]\nmax-range = [1, 2]", "'1,2': expected a whole number."),
        ("[release]\nquiet = 1", "quiet: expected true or false"),
        ("[release]\nsensitivity = 1.0\nmethod = 'tops'", "--sensitivity does not apply to --method tops"),
        (f"[release]\nepsilon = {'[' * 2000}{']' * 2000}", "own.toml: "),
        ("x = " + ".".join("a" * 3) + "\n" + "[" + ".".join("a" * 5000) + "]", "own.toml: "),
    ],
)
def test_files_of_options_that_are_refused(content: str, said: str, refused: Callable[..., str]) -> None:
    Path("own.toml").write_text(content)
    line = "--config own.toml release in.npy -o x.npy --bound 200" + " --epsilon 1" * ("epsilon =" not in content)
    assert said in refused(line, code=2)
