"""Reports of the local model, and the estimate of a distribution from them."""
