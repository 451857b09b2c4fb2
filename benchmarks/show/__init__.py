"""Prints the tables that README and ``benchmarks/README.md`` quote: ``python -m benchmarks.show speed``."""
