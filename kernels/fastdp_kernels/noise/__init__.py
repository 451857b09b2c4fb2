"""Noise from random words, and keyed functions that make words."""
