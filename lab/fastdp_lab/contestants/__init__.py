"""The rivals of the benchmark suites, written from their papers, with exact noise (:mod:`fastdp_lab.mechanism`)."""

from __future__ import annotations

from fastdp_lab.contestants.event import EVENT
from fastdp_lab.contestants.local import LOCAL
from fastdp_lab.contestants.points import POINTS
from fastdp_lab.contestants.series import SERIES
from fastdp_lab.contestants.w_event import W_EVENT
from fastdp_lab.mechanism import Mechanism

#: Each is registered as those of other packages are.
MECHANISMS: tuple[Mechanism, ...] = (*EVENT, *W_EVENT, *SERIES, *LOCAL, *POINTS)
