"""Turn crops into unit vectors with ONNX Runtime: bundles, embedder, verification. No torch."""
