"""``python -m benchmarks accuracy PART``."""

import sys

from benchmarks.shared import run_part

if __name__ == "__main__":
    sys.exit(run_part("accuracy"))
