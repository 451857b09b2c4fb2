"""``python -m benchmarks peers [PYTEST OPTIONS]``: pytest-benchmark's tables of every group of tasks."""

import sys
from pathlib import Path

import pytest

if __name__ == "__main__":
    sys.exit(pytest.main([str(Path(__file__).parent), "--benchmark-enable", *sys.argv[1:]]))
