"""Route each crop to the bundle of its species."""
