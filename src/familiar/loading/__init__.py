"""Loading of labeled photos into training batches (torch)."""
