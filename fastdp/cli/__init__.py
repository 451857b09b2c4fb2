"""The command line: ``fastdp release``, ``fastdp synthesize``, ``fastdp demo``.

Importing this package is cheap; each command imports what it needs when it runs, so ``--help`` is instant.
"""

from fastdp.cli.group import main

__all__ = ["main"]
