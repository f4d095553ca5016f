"""Identity embeddings for the faces of people and pets.

Nothing is imported here, so that `import familiar` costs nothing: take what you need from the
packages, from the ground up - `core`, `faces`, `metrics`, `datasets`, `evaluation`, `loading`,
`models`, `losses`, `training`, `recipes`, `export`, `app`.
"""

__version__ = "0.1.0"
