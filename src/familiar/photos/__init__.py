"""Decode photos safely: pixels, EXIF and the crop's preprocessing. No knowledge of faces."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
