"""Export: a trained network as one bundle file, with a check that it computes the same (torch)."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
