"""Finished releases: values, their guarantee, and answers to range queries with intervals.

Answers of tables are in :mod:`fastdp.tables.answers`.
"""
