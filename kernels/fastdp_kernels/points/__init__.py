"""Cells, trees of cells and points in them."""
