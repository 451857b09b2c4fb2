"""A benchmark for private streams of clipped real values: does a mechanism beat what a sceptic would try first?

Run: python -m benchmarks.accuracy [-o DIR] [--data DIR] [--quick]
"""
