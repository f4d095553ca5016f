"""Named embeddings that last: one SQLite file of photos, faces and who they are, and what is done with it."""
