"""Planted mistakes, one at a time, and whether the tests detect them.

``tables/`` lists them by area.  No library for mutation testing fits: they change operators one by one, thousands of
times, and each change of a kernel compiles all kernels; this is a table of mistakes that a programmer makes.
"""
