"""Processes killed without warning, full disks, forbidden folders, and what survives them; negative controls."""

import os

# Children are forked: the fewer threads, the better.  NumPy reads this when it is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
