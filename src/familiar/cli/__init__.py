"""The command line: each command is one call into the library, then printing."""

__all__: list[str] = []
