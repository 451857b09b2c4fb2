"""Private totals, counts and means of a table with times, keys and persons.

In order of a release: ``functions`` and their ``arguments``, ``plan`` and ``shares``, ``rows`` of ``columns``, a
``tally`` by size, ``keys``, ``paths``, ``choices`` of clips (by ``sizes``, ``tails``), a second tally of ``sums``, to
which noise is bound there, ``released``.  At print: ``table``, ``output``, ``answers`` of ``statistics``,
``consistent`` sums, ``promise``.  ``windows`` (a step: ``windows_machine``) do the same for rows that arrive;
``planning`` is :func:`fastdp.plan`.
"""
