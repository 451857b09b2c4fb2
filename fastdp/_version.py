"""The version, in one place (hatch reads it)."""

__version__ = "0.1.0"
