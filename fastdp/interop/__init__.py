"""Exact noise inside other libraries, imported on use (``docs/interop.md``)."""
