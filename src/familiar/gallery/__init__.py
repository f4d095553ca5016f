"""A photo collection in one SQLite file: its photos, faces and identities, and the operations on it."""
