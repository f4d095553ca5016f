"""Embedding of more photos than one machine can embed, by the workers of a Ray cluster, into Parquet files."""
