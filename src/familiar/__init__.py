"""Identity embeddings for the faces of people and pets.

`from familiar import Gallery, Embedder, train, evaluate` gives what most programs need; `familiar.losses`, `metrics`,
`models`, `datasets`, `recipes` and the other packages give the rest. Nothing is loaded before it is used, so
`import familiar` is cheap.

From the lowest layer up the packages are `core`; `photos`, `metrics`, `neighbors`, `client`; `detection`, `datasets`;
`embedding`; `loading`, `models`, `losses`, `evaluation`, `gallery`; `training`; `recipes`, `export`; `integrations`;
`web`; `cli`.
"""

import os
import sys

import lazy_loader

__version__ = "0.1.0"

# Since 1.29 ONNX Runtime sends its makers events of each process, and keeps a number of this machine in the user's
# cache, unless this is set before it is loaded (Privacy.md in its wheel). Here, since all else is imported after this.
if os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1") == "1" and "onnxruntime" in sys.modules:
    sys.modules["onnxruntime"].disable_telemetry_events()  # loaded too early: at least nothing more from now on

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
