"""Labelled photos into training batches (torch)."""
