"""Embed crops as unit vectors with ONNX Runtime: bundles, embedder, verification. No torch."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
