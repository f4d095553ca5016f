"""The fixtures of galleries, and the one that runs a command."""

from support.cli import familiar
from support.gallery_fixtures import album, drawings, embedder, folder, gallery, other_embedder, pets, short_waits

__all__ = ["album", "drawings", "embedder", "familiar", "folder", "gallery", "other_embedder", "pets", "short_waits"]
