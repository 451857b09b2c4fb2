"""The shell's words: no message and no help has a Python spelling, whichever option is wrong."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import click
import pytest
from click.testing import Result

from fastdp.cli import COMMANDS, main

pytestmark = pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
PYTHON = r"\b[a-z_]+=| = |\b(None|True|False|timedelta)\b|fastdp\.(?!release\))|``|:\w+:`|\b[A-Z]\w+\("
#: Commands that succeed, in which one option at a time is wrong or missing.
LINES = [
    "release in.npy -o out.csv --epsilon 1 --bound 200",
    "release in.npy -o out.csv --epsilon 1 --sensitivity 1",
    "release few.csv --column load -o out.csv --epsilon 1 --bound 200",
    "release in.npy -o out.csv --epsilon 1 --bound 200 --method tops --threshold 9 --max-range 64",
    "release in.npy -o out.csv --epsilon 1 --bound 200 --method pak --length 4321 --delta 1e-6 --holdout 100",
    "release in.npy -o out.csv --epsilon 1 --bound 200 --method topl --holdout 100",
    "release in.npy -o out.csv --epsilon 1 --bound 200 --force --ledger budget --stream s --limit 1",
    "release - -o - --epsilon 1 --bound 200 --follow --threshold 9",
    "totals readings.parquet -o out.csv --value kwh --time at --every 1d --epsilon 1 --bound 10",
    "totals few.csv -o out.csv --value load --time at --every 1d --epsilon 1 --bound 10",
    "counts readings.parquet -o out.csv --epsilon 1 --by floor --keys 1",
    "counts readings.parquet -o out.csv --epsilon 1 --by city --delta 1e-6 --person meter --rows 3",
    "means readings.parquet -o out.csv --value kwh --epsilon 1 --clip 10",
    "aggregate readings.parquet -o out.csv --statistics kwh=sum,mean --statistics *=count --epsilon 1 --bound kwh=10",
    "plan --statistics kwh=sum,mean --bound kwh=10 --expected-rows 400 --expected-mean kwh=0.4 --epsilon 1",
    "plan --statistics *=count --keys 74 --person rider --rows 4 --per 1d --half-width 20 --every 1d --windows 9",
    "synthesize events.csv -o points.csv --epsilon 1 --box 0 0 10 5 --batch 300",
    "synthesize events.csv -o points.csv --epsilon 1 --box 0 0 10 5 --batch 1d --method adaptive",
    "ledger limit budget --epsilon 2",
    "ledger verify budget",
]
RARE = ("x", "", "nan", "1e400", "0.5", "a=3", "1,2")
WRONG = ["-1", *(pytest.param(each, marks=pytest.mark.slow) for each in RARE)]


def command_of(words: list[str]) -> click.Command:
    command: click.Command = main
    for word in words:
        if isinstance(command, click.Group):
            command = command.get_command(click.Context(main), word) or command
    return command


def python_in(said: str, command: click.Command) -> re.Match[str] | None:
    names = [option.name for option in command.params if option.name and "_" in option.name]
    return re.search("|".join([PYTHON, *(rf"\b{name}" for name in names)]), said)


def altered(line: str, wrong: str) -> Iterator[list[str]]:
    """The line with each of its options left out, and with each option of the command `wrong`."""
    words = shlex.split(line)
    begins = [i for i, word in enumerate(words) if word.startswith("-") and len(word) > 1]
    for begin, end in pairwise([*begins, len(words)]):
        yield words[:begin] + words[end:]
    for option in command_of(words).params:
        if isinstance(option, click.Option) and option.name != "help":
            yield [*words, option.opts[-1], *([] if option.is_flag else [wrong] * option.nargs)]
            yield from ([*words, flag] for flag in option.secondary_opts)


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("line", LINES)
def test_no_message_has_a_python_spelling(line: str, wrong: str, run: Callable[..., Result]) -> None:
    Path("few.csv").write_text("at,city,load\n" + "".join(f"2024-01-0{i},Rome,{i}.5\n" for i in range(1, 9)))
    run("ledger limit budget --epsilon 9")
    text = "1\n2\n" if " - " in line else None
    for words in altered(line, wrong):
        result = run(shlex.join(words), stdin=text, code=None)
        for said in result.stderr.splitlines():
            told = re.sub(r"'[^']*'|--[a-z-]+ \w+=", "", said.replace(wrong or "''", ""))
            if said.startswith(("Error: ", "Warning: ")):
                assert not python_in(told, command_of(words)), (shlex.join(words), said)


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "ledger"] + ["ledger limit", "ledger verify"])
def test_no_help_has_a_python_spelling(name: str) -> None:
    command = command_of(name.split())
    for option in command.params:
        said = getattr(option, "help", None) or ""
        assert not python_in(re.sub(r'"[^"]*"', "", said), command), (option.name, said)
