"""ToPL: streams in the local model."""
