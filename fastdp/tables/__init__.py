"""Private totals, counts and means of a table with times, keys and persons.

Modules in the order of a release: ``plan`` (public parameters), ``columns`` and ``persons`` (rows, bounded for each
person), ``calendar`` (windows), ``choices`` (clip and private keys), ``sums`` (sums and noise); ``functions`` calls
them, ``windows`` does so for rows that arrive over time.  ``answers`` computes estimates, ``table`` shows them.
"""
