"""Other programs and libraries, each used through the public API of `familiar`."""

__all__: list[str] = []
