"""The version, which hatch reads."""

__version__ = "0.2.0"
