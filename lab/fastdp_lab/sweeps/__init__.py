"""Simulation sweeps over cells of (data set, mechanism, epsilon, repetition): resumable, with pictures.

Examples
--------
>>> import fastdp
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

from fastdp_lab.sweeps.estimate import Estimate, estimate
from fastdp_lab.sweeps.points.data_set import SPATIAL_GENERATORS, SpatialDataSet
from fastdp_lab.sweeps.points.mechanisms import SPATIAL_SYSTEMS, SpatialSetting, SpatialSystem
from fastdp_lab.sweeps.points.queries import BoxWorkload
from fastdp_lab.sweeps.results import load, read_manifest
from fastdp_lab.sweeps.runner import run
from fastdp_lab.sweeps.specification import Mechanism, Specification, from_table, read_specification
from fastdp_lab.sweeps.values.data_set import GENERATORS, DataSet, Generator
from fastdp_lab.sweeps.values.mechanisms import SYSTEMS, RunResult, Setting, System
from fastdp_lab.sweeps.values.queries import Workload

__all__ = [
    "GENERATORS",
    "SPATIAL_GENERATORS",
    "SPATIAL_SYSTEMS",
    "SYSTEMS",
    "BoxWorkload",
    "DataSet",
    "Estimate",
    "Generator",
    "Mechanism",
    "RunResult",
    "Setting",
    "SpatialDataSet",
    "SpatialSetting",
    "SpatialSystem",
    "Specification",
    "System",
    "Workload",
    "estimate",
    "from_table",
    "load",
    "read_manifest",
    "read_specification",
    "run",
]
