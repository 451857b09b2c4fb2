"""The public names by ``__all__``, and the reason why some take no data."""

from __future__ import annotations

import inspect
import operator
import types
from collections.abc import Iterable, Iterator
from typing import Any

import fastdp
import fastdp_lab

#: Methods of many classes.
METHODS = {
    "save keep": "a path and a key; what a file holds is read by load",
    "load from_bytes": "a path, or bytes, and a key; see test_damaged_state_files",
    "to_bytes": "a key",
    "step": "what publish, release or receive pass on; those with a step of their own have a row",
    "stream": "as step; publishers of values have a row",
    "news": "counts and thresholds; see test_no_log_shows_the_canary",
    "take": "a state",
    "check_room check_plain": "a number of values",
    "describe identity table stamp files as_dict of to_dict to_json from_dict": "gives back parameters",
    "guarantee start chooser kappa law plan shape warm_up noise_constant candidate_step": "parameters",
    "leaf_noise node_noise noise_rows": "draws noise",
    "sample measure draw": "cells and counts that were released, or random queries",
    "pack unpack copy": "of a chooser, for state files",
    "settle check check_state following": "state of counters, checked by step",
    "from_description": "a domain, for state files",
    "open_draws": "a number of steps",
    "half_width_of epsilon_for": "parameters of a plan",
    "interval std_error": "boxes, for the methods of ReleasedTree",
    "weight": "whole numbers of the law's grid",
}
#: Names, or classes as a whole.
WITHOUT_DATA = {
    "Guarantee": "numbers of a guarantee",
    "Ledger": "names and guarantees",
    "Release": "values that are released",
    "repetitions.Repetitions": "values that are released",
    "planning.LightTail planning.Optimum planning.TailSearch": "results",
    "planning.exponential_quantile planning.kappa planning.light_tail_error planning.noise_quantile": "parameters",
    "planning.noise_scale planning.outlier_error planning.quantile_criterion planning.smoothing": "parameters",
    "planning.sensitivity_criterion planning.spacing_smooth_sensitivity planning.tau_max": "parameters",
    "planning.tree_error planning.underestimate_probability planning.worst_case_error": "parameters",
    "planning.optimise_pak planning.recommended_lag": "parameters, and functions of the caller's",
    "planning.Optimum.arguments planning.reach_criterion": "parameters",
    "auditing.AuditResult": "a result",
    "audit.Case auditing.Publishing auditing.TrialMechanism audit.audit_cases": "made for audit",
    "counters.BinaryTree counters.Block counters.Simple counters.Counter": "noise of sums, without the sums",
    "counters.Selector counters.event_guarantee": "a protocol; parameters",
    "errors.warn": "a message of the package",
    "datasets.Entry datasets.fetch": "a source and its address",
    "datasets.SpatialStream": "checked by cut_events; its methods take numbers of batches",
    "datasets.concentric_circles datasets.dns_like_day datasets.made_up_check_ins": "synthetic data",
    "datasets.made_up_pickups datasets.made_up_streets datasets.table1": "synthetic data",
    "sweeps.Maker sweeps.RunResult sweeps.Setting sweeps.Specification sweeps.System": "parameters",
    "sweeps.cluster sweeps.from_table sweeps.read_specification": "parameters",
    "sweeps.estimate sweeps.run": "by the command sweep",
    "Key.bound Key.composition": "parameters",
    "Fleet Fleet.merge Fleet.part_of Fleet.split": "public ids and parameters",
    "engines.Job engines.Job.fleet engines.Job.register": "parameters",
    "engines.Job.resume engines.Job.suspend": "states that the job wrote",
    "sweeps.draw sweeps.load sweeps.read_manifest": "by the command plot",
    "ledger.Budget ledger.Entry ledger.Reservation ledger.compose": "names and guarantees",
    "local.HistogramCollector.estimate local.HistogramCollector.to_bytes": "parameters",
    "local.SumCollector.sum local.SumCollector.mean local.SumCollector.std_error": "numbers of slots",
    "local.SumCollector.to_bytes local.Announcement.to_text local.Announcement": "parameters",
    "local.Client local.Hybrid local.Piecewise local.StochasticRounding": "parameters",
    "local.SquareWave local.LogSquareWave local.HistogramCollector local.SumCollector": "parameters",
    "perturbers.Blocks perturbers.Flat perturbers.Hierarchy": "parameters",
    "perturbers.Perturber": "a protocol",
    "discrete_gaussian discrete_laplace noise.geometric": "parameters",
    "thresholds.renewals.RenewFromPublished thresholds.renewals.RenewFromHoldout": "parameters",
    "thresholds.renewals.Renewal": "a protocol",
    "smoothers.Exponential smoothers.Mean smoothers.Median smoothers.MovingAverage smoothers.Recent": "noisy means",
    "smoothers.Smoother smoothers.SmootherState": "protocols",
    "spatial.Box spatial.Domain spatial.Network spatial.Polygons": "parameters",
    "spatial.Box.contains spatial.Domain.contains": "points that as_points has checked",
    "spatial.CellIndex.count boxes.PointIndex.count spatial.PrivTree spatial.ReleasedTree": "boxes; parameters",
    "boxes.BoxQueries boxes.paper_queries boxes.random_boxes": "parameters",
    "spatial.write_cells": "cells that were released",
    "thresholds.Fixed thresholds.Threshold thresholds.Chooser": "no values; protocols",
    "thresholds.NoisyMax thresholds.ScaleFree thresholds.PAKQuantile thresholds.SmoothQuantile": "parameters",
    "thresholds.SquareWave thresholds.TruePercentile": "parameters",
    "thresholds.SquareWave.client thresholds.SquareWave.estimate": "parameters; counts of reports",
    "thresholds.SquareWave.choose_from": "an estimate from reports",
    "workloads.random_ranges": "parameters",
    "Windows.advance": "the public clock",
    "Plan Plan.epsilon_for Plan.half_width_of Plan.std_error_with": "parameters",
    "StreamPublisher baselines.WEvent baselines.Zeros": "parameters",
    "ToPLServer counters.RunningCounts counters.SelectiveCounting": "parameters",
    "ToPLServer.shard": "nothing",
    "AdaptivePHDStream.count PHDStream.count": "boxes, for ReleasedTree.count",
    "plan Plan Person Rows Time Value": "parameters",
    "baselines.FixedTree.count baselines.OfflineOnBatch.count baselines.OfflineOnStream.count": "boxes",
    "Key.choose Key.from_seed Key.derive Key.of_stream Key.random Key.reveal Key.from_bytes": "by the row of Key",
    "Key.again Key.bind Key.within Key.fingerprint": "public parameters, and sums that are released",
}
#: Of these every name, with all its methods, takes no data.
WHOLE_CLASSES = (
    "Guarantee",
    "Ledger",
    "Release",
    "auditing",
    "sweeps",
    "ledger",
)
WHOLE_CLASSES += (
    "perturbers",
    "thresholds.renewals",
    "smoothers",
    "counters.BinaryTree",
    "counters.Block",
    "counters.Simple",
)
WHOLE_CLASSES += ("counters.Counter", "counters.Selector", "datasets.SpatialStream")
WHOLE_CLASSES += ("thresholds.Fixed", "thresholds.Threshold", "thresholds.Chooser", "spatial.Domain")


def split(names: Iterable[str]) -> set[str]:
    return {each for several in names for each in several.split()}


def found(name: str) -> Any:
    """A public part of fastdp or its laboratory."""
    try:
        return operator.attrgetter(name)(fastdp)
    except AttributeError:
        return operator.attrgetter(name)(fastdp_lab)


def all_names() -> Iterator[str]:
    """Functions, classes and their methods, by the first public path."""
    modules = [name for name in fastdp.__all__ if isinstance(getattr(fastdp, name), types.ModuleType)]
    seen: set[int] = set()
    inner = [(path, found(path)) for path in (*modules, "thresholds.renewals")]
    for path, module in [("", fastdp), *inner, *((path, getattr(fastdp_lab, path)) for path in fastdp_lab.__all__)]:
        own = [name for name, thing in vars(module).items() if getattr(thing, "__module__", "") == module.__name__]
        for name in getattr(module, "__all__", own):
            thing = getattr(module, name)
            if name.startswith("_") or not callable(thing) or id(thing) in seen:
                continue
            seen.add(id(thing))
            shown = f"{path}.{name}" if path else name
            if not inspect.isclass(thing):
                yield shown
            elif not issubclass(thing, BaseException):
                yield shown
                methods = (each for each in dir(thing) if not each.startswith("_") and callable(getattr(thing, each)))
                yield from (
                    f"{shown}.{each}" for each in methods if not (issubclass(thing, tuple) and hasattr(tuple, each))
                )


def taking_no_data(names: set[str]) -> set[str]:
    """Those of the names that stand above."""
    excused, methods = split(WITHOUT_DATA), split(METHODS)
    return {n for n in names if n in excused or n.rpartition(".")[2] in methods or n.startswith(WHOLE_CLASSES)}
