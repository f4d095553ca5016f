"""Identity embeddings for the faces of people and pets.

Nothing is imported here, so `import familiar` is cheap: import from the packages what you need. From the lowest layer
up they are `core`; `photos`, `metrics`, `neighbors`, `client`; `detection`, `datasets`; `embedding`; `loading`,
`models`, `losses`, `evaluation`, `gallery`; `training`; `recipes`, `export`; `web`; `cli`.
"""

__version__ = "0.1.0"
