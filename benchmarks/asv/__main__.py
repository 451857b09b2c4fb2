"""``python -m benchmarks asv ...`` is ``asv ...`` in the project's root, but for ``record`` and ``alarms``."""

import sys

from benchmarks import ROOT
from benchmarks.asv import alarms, record

OWN = {"record": record, "alarms": alarms}

if __name__ == "__main__":
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    sys.exit(OWN[name].main(sys.argv[2:]) if name in OWN else record.asv(*sys.argv[1:], cwd=ROOT))
