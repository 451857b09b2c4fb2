"""Seconds and memory: beside NumPy, OpenDP and np.copyto, on two cores, from a fresh process, in long streams."""
