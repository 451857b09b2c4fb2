"""Private totals, counts and means of a table with times, keys and persons.

A release, in the order in which it happens: ``plan`` checks what is public, ``columns`` and ``persons`` read rows
and bound those of a person, ``calendar`` has the windows, ``choices`` chooses the clip and the private keys, ``sums``
adds and draws the noise; ``functions`` drives all of it.  ``windows`` does the same for rows that arrive one after
the other.  ``answers`` computes estimates and intervals; ``table`` and ``output`` show them.
"""
