"""Peers of fastdp in the tables of speed: NumPy by a skilled hand, and OpenDP."""
