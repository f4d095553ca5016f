"""The fixtures of galleries."""

from support.gallery_fixtures import album, drawings, embedder, folder, gallery, other_embedder, pets, short_waits

__all__ = ["album", "drawings", "embedder", "folder", "gallery", "other_embedder", "pets", "short_waits"]
