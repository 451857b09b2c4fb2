"""Simulation sweeps over cells of (data set, mechanism, epsilon, repetition): resumable, with pictures.

A specification (``specification.py``) has cells, run in parts (``runner.py``); their rows become
results (``results.py``) and pictures (``figures.py``).  ``values.py`` and ``points.py`` are the two kinds of streams.

Examples
--------
>>> import fastdp_lab
>>> specification = fastdp_lab.sweeps.from_table({
...     "epsilons": [0.1, 1.0],
...     "holdout": 1000,
...     "max_range": 4096,
...     "datasets": [{"name": "POS", "generator": "table1", "stream": "pos", "n": 5000}],
...     "mechanisms": [{"name": "ToPS", "system": "tops", "prune": [0, 1]}],
... })
>>> len(specification.mechanisms)
2
"""

from fastdp_lab.sweeps.figures import draw
from fastdp_lab.sweeps.points import SPATIAL_GENERATORS
from fastdp_lab.sweeps.results import load, read_manifest
from fastdp_lab.sweeps.runner import check_data, cluster, run, timed
from fastdp_lab.sweeps.specification import Specification, from_table, read_specification
from fastdp_lab.sweeps.study import Maker, System
from fastdp_lab.sweeps.systems import SPATIAL_SYSTEMS, SYSTEMS, RunResult, Setting
from fastdp_lab.sweeps.values import GENERATORS

__all__ = [
    "GENERATORS",
    "SPATIAL_GENERATORS",
    "SPATIAL_SYSTEMS",
    "SYSTEMS",
    "Maker",
    "RunResult",
    "Setting",
    "Specification",
    "System",
    "check_data",
    "cluster",
    "draw",
    "from_table",
    "load",
    "read_manifest",
    "read_specification",
    "run",
    "timed",
]
