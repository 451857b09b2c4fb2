"""Simulation sweeps over cells of (data set, mechanism, epsilon, repetition): resumable, with pictures.

Examples
--------
>>> import fastdp
>>> specification = fastdp.experiments.from_table({
...     "epsilons": [0.1, 1.0],
...     "holdout": 1000,
...     "max_range": 4096,
...     "datasets": [{"name": "POS", "generator": "table1", "stream": "pos", "n": 5000}],
...     "mechanisms": [{"name": "ToPS", "system": "tops", "prune": [0, 1]}],
... })
>>> len(specification.mechanisms)
2
"""

from fastdp.experiments.estimate import Estimate, estimate
from fastdp.experiments.points.data_set import SPATIAL_GENERATORS, SpatialDataSet
from fastdp.experiments.points.mechanisms import SPATIAL_SYSTEMS, SpatialSetting, SpatialSystem
from fastdp.experiments.points.queries import BoxWorkload
from fastdp.experiments.results import load, read_manifest
from fastdp.experiments.runner import run
from fastdp.experiments.specification import Mechanism, Specification, from_table, read_specification
from fastdp.experiments.values.data_set import GENERATORS, DataSet, Generator
from fastdp.experiments.values.mechanisms import SYSTEMS, RunResult, Setting, System
from fastdp.experiments.values.queries import Workload

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
