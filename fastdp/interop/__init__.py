"""Exact noise inside other tools: ``fastdp.interop.opendp``, ``fastdp.interop.duckdb``, ``fastdp.interop.polars``.

Each module imports its tool where it is used (``docs/interop.md``).
"""
