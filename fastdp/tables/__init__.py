"""Private totals, counts and means of a table with times, keys and persons.

In order of a release: ``functions`` and their ``arguments``, ``plan`` and ``shares``, ``rows`` of ``columns``, a
``tally`` by size, ``choices`` of clips (by ``sizes``, ``tails``) and ``keys``, a second tally of ``sums``, noise,
``released``.  At print: ``table``, ``output``, ``answers`` of ``statistics``, ``consistent`` sums, ``promise``.
``windows`` do the same for rows that arrive; ``planning`` is :func:`fastdp.plan`.
"""
