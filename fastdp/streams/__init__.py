"""Streams of values: publishers, and releases of finished arrays (``array_rule``).

A step is ``stream_machine``: ``holdout`` chooses theta, ``fixed_blocks`` or ``adaptive_blocks`` close blocks in a
kernel, for many streams by ``rows``.
"""

#: Methods by the name that the command line, sweeps and audits use; the public class of each.
METHODS = {"adaptive": "Adaptive", "tops": "ToPS", "pak": "PAK", "topl": "ToPL"}
