"""Networks of others as bundles: ONNX graphs that take pixels and return unit vectors. Needs onnx, but no torch."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
