"""The web pages and the HTTP API over one gallery."""
