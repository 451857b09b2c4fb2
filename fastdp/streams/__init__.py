"""Streams of values: publishers, releases of finished arrays, many streams at once."""

#: Methods by the name that the command line, sweeps and audits use; the public class of each.
METHODS = {"adaptive": "Adaptive", "tops": "ToPS", "pak": "PAK", "topl": "ToPL"}
