"""Draws of noise from random words, and the keyed functions that make words."""
