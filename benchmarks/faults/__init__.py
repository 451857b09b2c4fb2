"""What survives: processes killed without warning, full disks, forbidden folders: ``python -m benchmarks.faults``."""
