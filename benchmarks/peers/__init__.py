"""Peers of fastdp, NumPy by a skilled hand and OpenDP, checked and timed by pytest-benchmark."""
