"""``python -m tests.golden`` writes ``digests.json`` again and prints which cases are new, gone or changed.

``--time`` prints the slowest cases too.
"""

from __future__ import annotations

import json
import sys
import time

from tests.golden.cases import CASES, DIGESTS, digest, environment, recorded


def main() -> None:
    """Write the digests of all cases."""
    _, before = recorded()
    now, seconds = {}, {}
    for name in CASES:
        begin = time.perf_counter()
        now[name] = digest(name)
        seconds[name] = time.perf_counter() - begin
    changes = {
        "new": sorted(now.keys() - before.keys()),
        "gone": sorted(before.keys() - now.keys()),
        "changed": [name for name in now if before.get(name, now[name]) != now[name]],
    }
    for change, names in changes.items():
        for name in names:
            print(f"{change}: {name}")
    print(f"{len(now)} cases; " + ", ".join(f"{len(names)} {change}" for change, names in changes.items()))
    if "--time" in sys.argv:
        for name in sorted(seconds, key=seconds.__getitem__)[-12:]:
            print(f"{seconds[name]:.3f} s  {name}")
        print(f"{sum(seconds.values()):.1f} s")
    DIGESTS.write_text(json.dumps({"environment": environment(), "digests": now}, indent=0) + "\n")


if __name__ == "__main__":
    main()
