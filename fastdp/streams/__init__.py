"""Streams of values: publishers, and releases of finished arrays."""

#: Methods by the name that the command line, sweeps and audits use; the public class of each.
METHODS = {"adaptive": "Adaptive", "tops": "ToPS", "pak": "PAK", "topl": "ToPL"}
