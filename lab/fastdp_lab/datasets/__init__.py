"""Streams to try fastdp on: synthetic, read from files of real data, and where real ones come from."""

from fastdp.cli.day import dns_like_day
from fastdp.spatial import SpatialStream, cut_events
from fastdp_lab.datasets.catalogue import CATALOGUE, Entry, fetch, parse
from fastdp_lab.datasets.circles import concentric_circles
from fastdp_lab.datasets.extension import extend_by_reflection, hold_out_and_extend
from fastdp_lab.datasets.places import made_up_check_ins, made_up_pickups, made_up_streets
from fastdp_lab.datasets.spatial_files import load_circles, load_gowalla, load_pickups
from fastdp_lab.datasets.table1 import TABLE1, table1

__all__ = [
    "CATALOGUE",
    "TABLE1",
    "Entry",
    "SpatialStream",
    "concentric_circles",
    "cut_events",
    "dns_like_day",
    "extend_by_reflection",
    "fetch",
    "hold_out_and_extend",
    "load_circles",
    "load_gowalla",
    "load_pickups",
    "made_up_check_ins",
    "made_up_pickups",
    "made_up_streets",
    "parse",
    "table1",
]
