"""Streams of values: publishers, and releases of finished arrays.

``methods`` have parameters, ``publisher`` takes values and lets them leave; ``stream_machine`` is a step: theta is
chosen in ``holdout``, and ``fixed_blocks`` or ``adaptive_blocks`` draw noise and close blocks, in the kernels
``fixed_pass`` and ``adaptive_pass``; ``rows`` do so for many streams (``release_many``, ``fleet``).
:func:`fastdp.release` is ``array_rule``.
"""

#: Methods by the name that the command line, sweeps and audits use; the public class of each.
METHODS = {"adaptive": "Adaptive", "tops": "ToPS", "pak": "PAK", "topl": "ToPL"}
