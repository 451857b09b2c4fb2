"""Options that commands share."""

from __future__ import annotations

from pathlib import Path

import click

seed_option = click.option(
    "--seed",
    type=click.IntRange(min=0),
    metavar="N",
    help="For simulation only: reproducible noise, which anybody who guesses N can subtract. NOT PRIVATE.",
)
key_file_option = click.option(
    "--key-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A secret key of your own, 32 raw bytes or 64 hexadecimal digits in an owner-only file. "
    "Never use a key for two streams, nor twice for a stream that has changed.  [default: a fresh random key]",
)
state_option = click.option(
    "--state",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Remembers the noise, so that the same command can be run again on the same input after a crash and "
    "publishes the same values, never other noise for them. Encrypted under the key of --key-file, if there is one; "
    "without, whoever reads it can subtract the noise.",
)
quiet_option = click.option("--quiet", is_flag=True, help="No progress bar and no summary.")
force_option = click.option("--force", is_flag=True, help="Replace an existing output.")


def check_secrets(seed: int | None, key_file: Path | None) -> None:
    """A seed and a key exclude each other."""
    if seed is not None and key_file is not None:
        raise click.UsageError("--seed and --key-file exclude each other: simulation or release.")
