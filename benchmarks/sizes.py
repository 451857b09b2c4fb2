"""The sizes of the papers' experiments."""

BOUND = 1657  # BMS-POS
WIDE_BOUND = 41_270  # Kosarak
EPSILON = 0.05
FAN_OUT = 16
HOLDOUT = 65_536
PUBLISHED = 2**20
MAX_RANGE = 2**20
QUERIES = 200
THETA = 58.0
"""A threshold as NM-E chooses it on BMS-POS."""
