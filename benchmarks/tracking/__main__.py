"""``python -m benchmarks tracking PART ...``."""

import sys

from benchmarks.shared import run_part

PARTS = {
    "record": "measure a commit for the history of this machine, benchmarks/results/asv",
    "compare": "the checkout beside a commit on the quick set, and how far apart equal sides are",
}

if __name__ == "__main__":
    sys.exit(run_part("tracking", PARTS))
