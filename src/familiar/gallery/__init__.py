"""A photo collection in one SQLite file: its photos, faces and identities, and the operations on it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
