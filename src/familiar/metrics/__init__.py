"""Metrics as pure functions of embeddings, labels and scores; no knowledge of photos or networks."""
