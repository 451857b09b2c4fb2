"""``python -m benchmarks asv ...`` is ``asv ...`` in the project's root."""

import subprocess
import sys

from benchmarks import ROOT

if __name__ == "__main__":
    sys.exit(subprocess.call([sys.executable, "-m", "asv", *sys.argv[1:]], cwd=ROOT))
