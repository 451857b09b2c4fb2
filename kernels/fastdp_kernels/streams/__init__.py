"""Values of streams to block sums, released sums to published values, and answers from them."""
