"""Embedding of several species: a classifier routes each crop to the bundle of its species."""
