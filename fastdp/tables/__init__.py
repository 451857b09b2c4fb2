"""Private totals, counts and means of a table with times, keys and persons.

A release runs through ``functions``, ``plan``, ``shares``, ``rows``, ``tally``, ``keys``, ``choices``, ``sums`` and
``released``; its numbers are read by ``table``, ``answers`` and ``promise``.  ``windows`` do the same for rows that
arrive, and ``planning`` is :func:`fastdp.plan`.
"""
