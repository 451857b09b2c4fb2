"""Private totals, counts and means of a table with times, keys and persons.

A release, in the order in which it happens: ``parameters`` and ``plan`` check what is public, ``source`` and
``columns`` read rows, ``calendar`` says which window a row is in, ``persons`` bounds what a person contributes,
``choices`` chooses the clip and the private keys, ``quantity`` sums and draws the noise, ``release`` drives all of
it.  ``windows_machine`` does the same for rows that arrive one after the other, and closes windows.  ``answers``
computes estimates and intervals, ``revised`` smooths them; ``table``, ``frames``, ``picture`` and ``writing`` show
them.
"""
