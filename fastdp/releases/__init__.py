"""Finished releases: values, their guarantee, and answers to range queries with intervals."""
