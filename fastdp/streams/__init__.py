"""Streams of values: publishers, and releases of finished arrays.

``methods`` have parameters, ``publisher`` takes values and lets them leave; ``stream_machine`` is a step: theta is
chosen in ``holdout``, ``fixed_blocks`` draws noise by trees (``perturbers``) and closes blocks in the kernel
``fixed_pass``, ``adaptive_blocks`` does both in ``adaptive_pass``; ``rows`` do so for many streams (``release_many``,
``fleet``).
:func:`fastdp.release` is ``array_rule``.
"""

#: Methods by the name that the command line, sweeps and audits use; the public class of each.
METHODS = {"adaptive": "Adaptive", "tops": "ToPS", "pak": "PAK", "topl": "ToPL"}
