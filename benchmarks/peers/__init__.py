"""Other libraries for faces, run in an environment of their own."""
