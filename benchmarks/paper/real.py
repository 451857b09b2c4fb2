"""The real streams in place of the synthetic ones of ToPS Table 1, wherever their files are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.accuracy.scenes import STREAMS, Stream

#: Streams of Table 1 with the label in our figures, the real stream that takes its place, and that one's label.
STAND_INS = {
    "dns": ("DNS", "DNS", "DNS (Google)"),
    "fare": ("Fare", "taxi distance", "taxi distance, for Fare"),
    "kosarak": ("Kosarak", "MSNBC", "MSNBC, for Kosarak"),
    "pos": ("POS", "POS", "POS"),
}
#: Shown besides, where a figure has all four.
FURTHER = "smart meter"
#: Keys of a synthetic stream that a file does not have.
_OWN = ("generator", "stream", "n", "order", "seed")


def with_real_streams(table: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A sweep's TOML tables with every stream of Table 1 replaced by the real one, if its file is in the folder."""
    datasets = list(_replaced(table["datasets"], folder))
    if {each.get("stream") for each in table["datasets"]} == set(STAND_INS) and _there(STREAMS[FURTHER], folder):
        sizes = {key: each for key, each in table["datasets"][0].items() if key not in ("name", *_OWN)}
        datasets.append({"name": FURTHER, **_source(STREAMS[FURTHER]), **sizes})
    return {**table, "datasets": datasets}


def _replaced(datasets: list[dict[str, Any]], folder: Path) -> Iterator[dict[str, Any]]:
    for each in datasets:
        label, name, real = STAND_INS.get(each.get("stream", ""), ("", "", ""))
        if not name or not _there(STREAMS[name], folder):
            yield each
            continue
        kept = {key: value for key, value in each.items() if key not in ("name", *_OWN)}
        said = real if each["name"] == label else f"{real}, {each['name']}"
        yield {"name": said, **_source(STREAMS[name]), **kept}


def _there(stream: Stream, folder: Path) -> bool:
    return (folder / stream.file).exists()


def _source(stream: Stream) -> dict[str, Any]:
    return {"file": stream.file, "column": "values", "bound": stream.bound}
