"""Private totals, counts and means of a table with times, keys and persons.

In the order of a release: ``plan`` (public parameters), ``columns`` and ``persons`` (rows, bounded by person),
``calendar`` (windows), ``choices`` (clip, private keys), ``sums`` (sums and noise); ``functions`` calls them,
``windows`` for rows that arrive over time.  ``answers`` computes estimates, ``table`` shows them.
"""
