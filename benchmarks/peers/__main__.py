"""``python -m benchmarks peers [PYTEST OPTIONS]``: whether peers compute the same as fastdp."""

import sys
from pathlib import Path

import pytest

if __name__ == "__main__":
    sys.exit(pytest.main([str(Path(__file__).parent), *sys.argv[1:]]))
