"""Add photos to a gallery."""
