"""The fixtures of a server for a small gallery."""

from support.web_fixtures import client, folder, grouped_album, photos, service, serving, settings

__all__ = ["client", "folder", "grouped_album", "photos", "service", "serving", "settings"]
