"""Exact noise inside OpenDP, DuckDB and polars, imported on use (``docs/interop.md``)."""
