"""Rows of tables: which of a person count, and their sums."""
