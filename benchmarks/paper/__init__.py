"""Every figure and table of the papers, in kind: ``python -m benchmarks paper NAME``."""
