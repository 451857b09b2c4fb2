"""PAK: running sums of a stream of known length."""
