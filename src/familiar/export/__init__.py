"""A trained network into one bundle file, with proof that it computes the same (torch)."""
