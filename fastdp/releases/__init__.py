"""Finished releases: values, their guarantee, and answers to range queries with intervals.

Intervals are computed in ``error_bars`` (what an answer is uncertain by) from the laws in ``intervals``; those of
tables in :mod:`fastdp.tables.answers`.
"""
