"""Export: a trained network as one bundle file, with a check that it computes the same (torch)."""
