"""Value types, unit-vector mathematics, errors and file helpers that all other packages share."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
