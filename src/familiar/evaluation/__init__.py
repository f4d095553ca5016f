"""Evaluation of a model on labeled photos: suites of metrics over its embeddings, plots, and one report."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
