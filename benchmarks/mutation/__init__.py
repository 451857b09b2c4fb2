"""Planted mistakes, one at a time, and whether the tests see them: ``python -m benchmarks.mutation``.

``tables/`` lists them by area.  No library for mutation testing fits: what it writes for itself (``+`` to ``-``) compiles
the kernels once for each of thousands of changes, and most of those are no mistakes that a programmer makes.
"""
