"""One target under libFuzzer: ``python -m benchmarks fuzz.child TARGET FINDINGS [libFuzzer's own options]``.

A finding does not end the run: it is written down once for each place it came from.
"""

import hashlib
import json
import os
import sys
import traceback
from pathlib import Path

#: Packages whose branches guide the search.
GUIDES = ["fastdp", "tomllib", "csv", "zipfile", "gzip", "numpy.lib", "json"]


def place(error: BaseException) -> str:
    """The error's type and where it left the project."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if "/fastdp" in f.filename and "/fuzz/" not in f.filename] or list(frames)
    return f"{type(error).__name__} at {Path(ours[-1].filename).name}:{ours[-1].name}"


def main() -> None:
    # Of the extra "fuzz", and before what it instruments.
    import atheris

    name, folder = sys.argv[1], Path(sys.argv[2])
    with atheris.instrument_imports(include=GUIDES):
        from benchmarks.fuzz.targets import TARGETS, LawBrokenError
    target = TARGETS[name]
    known: set[str] = set()

    def one(data: bytes) -> None:
        try:
            target.run(data)
        except Exception as error:
            # What a message quotes differs from input to input.
            where = f"law: {error}".partition(": ")[2][:40] if isinstance(error, LawBrokenError) else place(error)
            if where in known:
                return
            known.add(where)
            finding = {"target": name, "where": where, "message": repr(error)[:500], "input": data.hex()}
            path = folder / f"{name}-{hashlib.sha256(where.encode()).hexdigest()[:12]}.json"
            path.write_text(json.dumps(finding, indent=1) + "\n")

    atheris.Setup([sys.argv[0], *sys.argv[3:]], one)
    os.environ.setdefault("PYTHONHASHSEED", "0")
    atheris.Fuzz()


if __name__ == "__main__":
    main()
