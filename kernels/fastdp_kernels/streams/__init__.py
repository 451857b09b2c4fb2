"""Values to block sums, released sums to published values, and answers."""
