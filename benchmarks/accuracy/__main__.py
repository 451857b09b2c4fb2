"""``python -m benchmarks accuracy PART``."""

import sys

from benchmarks.shared import run_part

PARTS = {
    "adaptive": "Adaptive beside ToPS, flat blocks, a shrunken tree, two halves of streams",
    "short": "finished arrays with nothing withheld beside the hold-out, n = 10^3 to 2^20; hold-outs by rate",
    "day": "a stream over time as ToPS and Adaptive publish it, as a picture",
    "methods": "every method of ToPS section 5 on one stream beside the authors' code",
    "thresholds": "ways to choose theta under one hierarchy, on every real stream",
    "thetas": "the theta that Adaptive chooses and follows beside the best fixed one, over four classes of ranges",
    "coverage": "how often intervals hold the truth: whole blocks, ranges at any place on every stream",
    "scale_free": "the threshold without units beside the best theta and NM-E, on every stream",
    "counts_mode": "Adaptive on buckets of events beside Laplace, flat blocks and PeGaSus",
    "patterns": "revised answers of streams that repeat, with and without a given period, beside flat blocks",
    "w_event": "w-event privacy: Adaptive beside Uniform, Sample, budget distribution and absorption",
    "pak": "PAK beside the plain binary tree and the authors' code",
    "local": "ToPL: theta and error on real streams, scales, exact ratios of report weights",
    "tables": "coverage and errors of totals and means of six tables, clips, levels, persons beside OpenDP",
    "keys": "private keys of counts: numbers and recall beside OpenDP and the weighted Gaussian, rows and persons",
    "appearing": "private keys online beside a batch selection again at each trigger",
    "gaussian": "prefix sums under (epsilon, delta) beside jax_privacy, dpcrpy and OpenDP; a person's many windows",
    "spatial": "PHDStream: errors and totals beside the authors' code, numbers of batches, exact losses",
}

if __name__ == "__main__":
    sys.exit(run_part("accuracy", PARTS))
