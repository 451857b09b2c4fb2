"""Local reports, and distributions estimated from them."""
