"""The web pages and the HTTP API over one gallery."""

__all__: list[str] = []
