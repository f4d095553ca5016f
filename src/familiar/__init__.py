"""Identity embeddings for the faces of people and pets.

`from familiar import Gallery, Embedder, train, evaluate` gives what most programs need; `familiar.losses`, `metrics`,
`models`, `datasets`, `recipes` and the other packages give the rest. Nothing is loaded before it is used, so
`import familiar` is cheap.

From the lowest layer up the packages are `core`; `photos`, `metrics`, `neighbors`, `client`; `detection`, `datasets`;
`embedding`; `loading`, `models`, `losses`, `evaluation`, `gallery`; `training`; `recipes`, `export`; `web`; `cli`.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
