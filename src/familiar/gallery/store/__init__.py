"""SQLite storage of a gallery: connection and schema."""
