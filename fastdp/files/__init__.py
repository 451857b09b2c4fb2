"""Files of values, read in chunks, and files that appear complete or not at all."""
