"""From a photo to an embedding, with ONNX Runtime; no torch."""
