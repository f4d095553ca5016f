"""Reproductions of published works, one module for each name that `reproduce.py` takes, and shared helpers."""
