"""Web server for one gallery: pages for people, an HTTP API for programs."""
