"""``python -m benchmarks tracking PART ...``."""

import sys

from benchmarks.shared import run_part

PARTS = {
    "record": "measure this commit in this environment, for the history of the machine",
    "alarms": "how often `asv continuous` reports a change between two equal commits",
}

if __name__ == "__main__":
    sys.exit(run_part("tracking", PARTS))
