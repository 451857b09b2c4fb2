"""Errors: Adaptive beside simple baselines; ToPS, PAK, ToPL, PHDStream beside the authors' code."""
