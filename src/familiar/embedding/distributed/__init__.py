"""Embedding of more photos than one machine can embed: in parts, each a Parquet file, by the workers of a Ray cluster."""
