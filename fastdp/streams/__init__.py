"""Streams of values: publishers, and releases of finished arrays (``array_rule``).

``methods`` have parameters, ``publisher`` takes values; ``stream_machine`` is a step: ``holdout`` chooses theta,
``fixed_blocks`` (noise by trees) or ``adaptive_blocks`` close blocks in a kernel, ``rows`` do so for many streams.
"""

#: Methods by the name that the command line, sweeps and audits use; the public class of each.
METHODS = {"adaptive": "Adaptive", "tops": "ToPS", "pak": "PAK", "topl": "ToPL"}
