"""Rows of tables: choice of a person's rows, and sums."""
