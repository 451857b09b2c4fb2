"""Synthetic points from a stream of insertions and deletions, and baselines."""
