"""Embed crops as unit vectors with ONNX Runtime: bundles, embedder, verification. No torch."""
