"""The benchmarks of `gallery.py`, and the synthetic vectors that they use."""
