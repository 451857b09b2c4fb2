"""Private totals, counts and means of a table with times, keys and persons.

In order of a release: ``plan``, ``columns`` and ``persons``, ``calendar``, ``choices`` (clip, private keys), ``sums``
(and noise), ``answers``, ``table``; called by ``functions``, and ``windows`` for rows that arrive over time.
"""
