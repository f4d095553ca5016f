"""How good is it: suites over embeddings, pictures, one report."""
