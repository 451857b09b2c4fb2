"""The version, in one place (hatch reads it)."""

__version__ = "0.2.0"
