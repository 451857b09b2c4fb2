"""Streams of values: a threshold, a perturber and a smoother, composed."""
