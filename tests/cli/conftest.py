"""The fixture that runs a command."""

from support.cli import familiar

__all__ = ["familiar"]
