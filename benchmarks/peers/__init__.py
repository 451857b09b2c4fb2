"""What fastdp is compared with, NumPy by a skilled hand and OpenDP, checked and timed by pytest-benchmark."""
