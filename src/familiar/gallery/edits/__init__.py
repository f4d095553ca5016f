"""Change a gallery by hand: corrections, undo, forgetting."""
