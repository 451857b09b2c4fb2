"""Streams to try fastdp on: synthetic, read from files of real data, and where real ones come from."""

from fastdp.cli.demo_command import dns_like_day
from fastdp_lab.datasets.catalogue import CATALOGUE, TABLE1, Entry, fetch, parse
from fastdp_lab.datasets.files import PointStream, cut_events, load_circles, load_gowalla, load_pickups
from fastdp_lab.datasets.synthetic import (
    concentric_circles,
    exponential,
    extend_by_reflection,
    growing,
    hold_out_and_extend,
    made_up_check_ins,
    made_up_pickups,
    made_up_streets,
    panel,
    table1,
)

__all__ = [
    "CATALOGUE",
    "TABLE1",
    "Entry",
    "PointStream",
    "concentric_circles",
    "cut_events",
    "dns_like_day",
    "exponential",
    "extend_by_reflection",
    "fetch",
    "growing",
    "hold_out_and_extend",
    "load_circles",
    "load_gowalla",
    "load_pickups",
    "made_up_check_ins",
    "made_up_pickups",
    "made_up_streets",
    "panel",
    "parse",
    "table1",
]
