"""Columns and rows of numbers from whatever the user has, once, as float64."""
