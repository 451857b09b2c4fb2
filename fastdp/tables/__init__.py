"""Private totals, counts and means of a table with times, keys and persons.

In order of a release: ``plan`` and ``shares``, ``rows``, ``choices`` (clip, private keys), ``sums`` (and noise),
``released`` and its ``promise``, ``statistics`` by ``answers``, ``table``; called by ``functions``, and by
``windows`` for rows that arrive over time.
"""
