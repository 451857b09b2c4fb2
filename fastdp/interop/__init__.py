"""Exact noise inside OpenDP, imported on use (``docs/interop.md``)."""
