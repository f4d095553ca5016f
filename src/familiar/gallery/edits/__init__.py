"""Change a gallery by hand: corrections, faces that are drawn, forgetting."""
