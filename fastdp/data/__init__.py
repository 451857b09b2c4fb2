"""Columns and rows of numbers as float64, from lists, arrays, data frames, Arrow and files."""
