"""Evaluation of a model on labeled photos: suites of metrics over its embeddings, plots, and one report."""
