"""Detect faces in a photo and align them to crops."""
