"""Finished releases, their guarantee, and answers with intervals."""
