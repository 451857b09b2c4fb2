"""Errors: Adaptive beside simple baselines; ToPS, PAK, PHDStream beside the authors' code."""
