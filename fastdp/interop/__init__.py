"""Exact noise inside OpenDP, ledgers for dp_accounting; imported on use (``docs/interop.md``)."""
