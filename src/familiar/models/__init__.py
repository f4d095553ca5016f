"""Crop tensor to unit embedding: networks, heads, initial weights (torch)."""
