"""Private totals, counts and means of a table with times, keys and persons."""
