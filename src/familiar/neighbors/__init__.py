"""Nearest vectors and the groups they form: pure functions over unit rows."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
