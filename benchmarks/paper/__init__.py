"""The papers' figures that are sweeps, in kind: ``python -m benchmarks paper NAME``."""
