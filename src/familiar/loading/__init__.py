"""Labeled photos into training batches (torch)."""
