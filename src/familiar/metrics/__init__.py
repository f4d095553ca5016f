"""Metrics as pure functions over embeddings, labels and scores: retrieval, verification, clustering and more."""
