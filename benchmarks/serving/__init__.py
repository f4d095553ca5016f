"""The works of serve.py."""
