"""Photos in shards: tar files of WebDataset and Parquet files of image bytes, on disk or behind an fsspec URL."""
