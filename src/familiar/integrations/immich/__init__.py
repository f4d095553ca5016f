"""Immich's machine-learning contract: what an Immich server sends to recognize faces, answered by familiar's models."""
